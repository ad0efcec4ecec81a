"""The series of an experiment with their summary metadata, as columns of a DataFrame."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tbupload.http.json_calls import read_pages
from tbupload.http.response_schema import (
    Json,
    by_run_and_tag,
    integer,
    number,
    record,
    string,
    unreadable_answer,
)
from tbupload.http.transport import Response, Transport
from tbwire.points import DATA_CLASSES

_SERIES_PER_PAGE: Final = 5_000
"""Series per page of a listing."""

_METADATA: Final = record(
    dict.fromkeys(("plugin", "display_name", "description", "content"), string)
)
_SERIES: Final = by_run_and_tag(
    {
        "data_class": string,
        "count": integer(),
        "max_step": integer(-(2**63)),
        "max_wall_time": number,
        "summary_metadata": _METADATA,
    }
)
_PAGE: Final = record({"series": _SERIES})


def series_columns(transport: Transport, path: str, selection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the selected series, by name.

    Args:
        transport: The connection to the server.
        path: The path of the experiment in the API.
        selection: Run and tag (lists of names), plugin; absent ones select all.

    Raises:
        Refused: The server rejected the request.
        Unreachable: The server does not respond.
    """
    rows = list(_iter_series(transport, path, selection))
    metadata = [series["summary_metadata"] for _, _, series in rows]
    texts = {
        name: [each[name] for each in metadata]
        for name in ("plugin", "display_name", "description")
    }
    return {
        "run": [run for run, _, _ in rows],
        "tag": [tag for _, tag, _ in rows],
        "data_class": [series["data_class"] for _, _, series in rows],
        **texts,
        "plugin_content": [_decode(each["content"]) for each in metadata],
        "points": np.array([series["count"] for _, _, series in rows], np.int64),
        "max_step": np.array([series["max_step"] for _, _, series in rows], np.int64),
        "max_wall_time": np.array([series["max_wall_time"] for _, _, series in rows], np.float64),
    }


def _iter_series(
    transport: Transport, path: str, selection: Mapping[str, Any]
) -> Iterator[tuple[str, str, Json]]:
    """Yield run, tag and fields of each series, by data class."""
    for kind in DATA_CLASSES:

        def read(after: str | None, kind: str = kind) -> Response:
            fields = {**selection, "limit": _SERIES_PER_PAGE, "after": after or ""}
            body = json.dumps(fields, ensure_ascii=False).encode()
            headers = {"Content-Type": "application/json"}
            return transport.request("POST", f"{path}/{kind}", body=body, headers=headers)

        for page in read_pages(read, _PAGE):
            for run, tags in page["series"].items():
                for tag, series in tags.items():
                    yield run, tag, series


def _decode(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error:
        raise unreadable_answer("content: no base64 where some should be") from None
