"""The bytes of HTTP responses, within limits: whatever a server sends, it takes bounded memory and time."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import urllib3

from tbupload.errors import Refused
from tbupload.limits import (
    ERROR_BYTES_MAX,
    ERROR_DETAIL_CHARS_MAX,
    RESPONSE_SECONDS_MAX,
    RETRY_AFTER_SECONDS_MAX,
)

PIECE_BYTES: Final = 1 << 20
"""Bytes of a piece of a response that is read as it arrives, at most."""


def iter_body(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the body as it arrives, at most PIECE_BYTES at a time.

    A body with a Content-Encoding is refused: none was asked for, and a few bytes of it may stand for gigabytes.
    Raises Refused, and urllib3's HTTPError when the connection breaks or nothing comes for too long.
    """
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in {"", "identity"}:
        response.close()
        raise Refused(
            f"the server, or a proxy before it, compresses its answers ({encoding[:100]}) although nobody asked for it",
            status=response.status,
        )
    while piece := response.read1(PIECE_BYTES, decode_content=False):
        yield piece


def read_body(response: urllib3.BaseHTTPResponse, bytes_max: int) -> bytes:
    """Return the whole body. Raises as `iter_body`, and Refused over `bytes_max` or RESPONSE_SECONDS_MAX."""
    deadline = time.monotonic() + RESPONSE_SECONDS_MAX
    pieces, size = [], 0
    for piece in iter_body(response):
        pieces.append(piece)
        size += len(piece)
        if size > bytes_max or time.monotonic() > deadline:
            response.close()
            limit = f"{bytes_max:,} bytes" if size > bytes_max else f"{RESPONSE_SECONDS_MAX:,.0f} s"
            raise Refused(
                f"the server's answer is over the limit of {limit}", status=response.status
            )
    return b"".join(pieces)


def parse_error_body(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """Return the fields of a refusal's JSON body; none when it is anything else."""
    try:
        content = json.loads(read_body(response, ERROR_BYTES_MAX))
    except (ValueError, RecursionError, Refused, urllib3.exceptions.HTTPError):
        response.close()
        return {}
    return content if isinstance(content, dict) else {}


def refusal_text(status: int, content: dict[str, Any]) -> str:
    """Return a refusal in words: its status, the server's detail and, of a fault of its own, the id in its log."""
    detail, number = content.get("detail"), content.get("id")
    text = f"HTTP {status}"
    if isinstance(detail, str) and detail:
        text += f": {detail[:ERROR_DETAIL_CHARS_MAX]}"
    return (
        f"{text} (id {number[:ERROR_DETAIL_CHARS_MAX]})"
        if isinstance(number, str) and number
        else text
    )


def retry_after_seconds(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header in either of its two forms, RETRY_AFTER_SECONDS_MAX at most.

    None when there is none, or it says nothing that can be understood.
    """
    if value is None:
        return None
    if re.fullmatch(r"\s*[0-9]{1,15}\s*", value):
        return min(float(value), RETRY_AFTER_SECONDS_MAX)
    try:
        seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError, OSError):
        return None
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)
