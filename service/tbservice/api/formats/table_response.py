"""Responses with a table in one of the formats of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import Response

from tbservice.api.formats.record_tables import (
    TABLE_MEDIA_TYPES,
    RecordTable,
    TableFormat,
    encode_table,
)
from tbservice.api.http.openapi_errors import Responses
from tbservice.api.http.streaming import stream_response

_RESPONSES: Final[Responses] = {
    200: {
        "description": "The table, streamed while it is read: a truncated response ends without "
        "HTTP's last chunk.",
        "content": {
            media_type.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
            for media_type in TABLE_MEDIA_TYPES.values()
        },
    }
}
TABLE_OPTIONS: Final[dict[str, Any]] = {"responses": _RESPONSES, "response_class": Response}
"""Options of a route that returns a table."""

FORMAT: Final = "Format of the response"
"""Description of the query parameter `format`."""


def respond_table(
    format_: TableFormat, make: Callable[[], RecordTable], file: str | None = None
) -> Response:
    """Return a response that is encoded while it is sent; browsers store it as `file`, in ASCII."""
    headers = {} if file is None else {"Content-Disposition": f'attachment; filename="{file}"'}
    return stream_response(
        lambda: encode_table(format_, make()), headers, TABLE_MEDIA_TYPES[format_]
    )
