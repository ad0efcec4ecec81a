"""How calls of the server's HTTP API are sent: JSON bodies, and pages of listings."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbupload.http.pagination import read_pages
from tbupload.http.response_schema import Json, Schema
from tbupload.http.transport import Response, Transport
from tbupload.limits import LISTING_BYTES_MAX


class JsonCalls:
    """Calls of one server's API; each raises Unreachable and Refused as `Transport.request`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _json(
        self,
        method: str,
        path: str,
        fields: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        may_retry: bool = True,
    ) -> Response:
        return self._transport.request(
            method,
            path,
            body=json.dumps(fields).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
            may_retry=may_retry,
        )

    def _get_pages(
        self, path: str, query: Mapping[str, str | Sequence[str]], schema: Schema
    ) -> Iterator[Json]:
        def read(after: str | None) -> Response:
            fields = dict(query) if after is None else {**query, "after": after}
            encoded = f"?{urllib.parse.urlencode(fields, doseq=True)}" if fields else ""
            return self._transport.request("GET", path + encoded)

        return read_pages(read, schema)

    def _post_pages(
        self,
        path: str,
        fields: Mapping[str, Any],
        schema: Schema,
        *,
        bytes_max: float = LISTING_BYTES_MAX,
    ) -> Iterator[Json]:
        def read(after: str | None) -> Response:
            return self._json("POST", path, {**fields, "after": after or ""})

        return read_pages(read, schema, bytes_max=bytes_max)
