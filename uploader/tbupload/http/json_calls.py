"""How calls of the server's HTTP API are sent: JSON bodies, and pages of listings, bounded.

A broken server cannot make a listing endless.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from tbupload.errors import Refused
from tbupload.http.response_schema import Json, Schema, unreadable_answer
from tbupload.http.transport import Response, Transport
from tbupload.limits import LISTING_BYTES_MAX, LISTING_PAGES_MAX

PAGE_TOKEN_CHARS_MAX: Final = 100_000
"""Characters of a page token: it may contain the names of a run and a tag."""


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


def experiment_path(*segments: str) -> str:
    """Return the path of an experiment, or of something in it; the first segment is its id."""
    quoted = "/".join(urllib.parse.quote(segment, safe="") for segment in segments)
    return f"/api/v1/experiments/{quoted}"


def read_pages(
    read: Callable[[str | None], Response], schema: Schema, *, bytes_max: float = LISTING_BYTES_MAX
) -> Iterator[Json]:
    """Yield the pages of a listing.

    Args:
        read: Requests a page by its page token (`next` of the page before); None for the first.
        schema: The schema of a page.
        bytes_max: Limit of the sum of all pages.

    Raises:
        Refused: A page does not fit the schema, a page token is repeated, or there are more than
            LISTING_PAGES_MAX pages or `bytes_max` bytes.
    """
    token: str | None = None
    seen: set[int] = set()
    size = 0
    for _ in range(LISTING_PAGES_MAX):
        response = read(token)
        size += len(response.body)
        if size > bytes_max:
            raise Refused(
                f"the server's listing is over the limit of {LISTING_BYTES_MAX:,} bytes", status=200
            )
        page = response.json(schema)
        del response  # its body is not kept in memory while the page is processed
        yield page

        token = page.get("next")
        if token is None:
            return
        if (
            not isinstance(token, str)
            or not token.isprintable()
            or len(token) > PAGE_TOKEN_CHARS_MAX
        ):
            raise unreadable_answer("next: no page token where one should be")
        if hash(token) in seen:
            raise Refused(
                "the server's listing does not end: the same page comes again", status=200
            )
        seen.add(hash(token))
    raise Refused(
        f"the server's listing does not end: it has more than {LISTING_PAGES_MAX:,} pages",
        status=200,
    )
