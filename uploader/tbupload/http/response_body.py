"""Bodies of HTTP responses, read within limits of memory and time."""

from __future__ import annotations

import email.utils
import json
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import urllib3

from tbupload.errors import Refused
from tbupload.limits import ERROR_DETAIL_CHARS_MAX

OVERSIZE: Final = "response_over_limit"
"""Code of a Refused for a response that is over the limit of what is read."""

READ_BYTES: Final = 1 << 20
"""Largest chunk of a body that is read as it arrives."""

RESPONSE_SECONDS_MAX: Final = 900.0
"""Time from the first to the last byte of such a response body."""

ERROR_BYTES_MAX: Final = 64 << 10
"""Bytes that are read of the body of an error response."""

RETRY_AFTER_SECONDS_MAX: Final = 300.0
"""Upper bound on the delay that a server requests (Retry-After, RFC 9110, section 10.2.3)."""


_PLAIN_PHRASES: Final = (
    (r"\b(?:body|query|path)\.([a-z_]+)", r"\1"),
    (r"String should have at most ([0-9]+) characters", r"at most \1 characters are accepted"),
    (r"List should have at most ([0-9]+) items? .*", r"at most \1 are accepted"),
)
"""Messages of the server's checks of requests, for people who made none by hand."""


def close(response: urllib3.BaseHTTPResponse) -> None:
    """Close a response that is not read to its end, and give its place in the pool back.

    Without the latter, the pool waits forever for a connection after a few such responses.
    """
    response.close()
    response.release_conn()


def iter_body(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Yield the body as it arrives, at most READ_BYTES at a time.

    Raises:
        Refused: The body has a Content-Encoding. None was asked for, and a few compressed bytes may
            expand to gigabytes.
        urllib3.exceptions.HTTPError: The connection broke, or timed out.
    """
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.strip().lower() not in {"", "identity"}:
        close(response)
        raise Refused(
            f"the server, or a proxy before it, compresses its answers ({encoding[:100]}), "
            "which was not requested",
            status=response.status,
        )
    while chunk := response.read1(READ_BYTES, decode_content=False):
        yield chunk


def read_body(response: urllib3.BaseHTTPResponse, bytes_max: int) -> bytes:
    """Return the body; raise as `iter_body`, and Refused above a limit.

    The limits are `bytes_max` and RESPONSE_SECONDS_MAX.
    """
    deadline = time.monotonic() + RESPONSE_SECONDS_MAX
    chunks, size = [], 0
    for chunk in iter_body(response):
        chunks.append(chunk)
        size += len(chunk)
        # A time for all of it: a read timeout alone would let a server send a byte every two
        # minutes.
        if size > bytes_max or time.monotonic() > deadline:
            close(response)
            limit = f"{bytes_max:,} bytes" if size > bytes_max else f"{RESPONSE_SECONDS_MAX:,.0f} s"
            raise Refused(
                f"the server's answer is over the limit of {limit}",
                status=response.status,
                code=OVERSIZE,
            )
    return b"".join(chunks)


def parse_error_body(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    """Return the fields of an error's JSON body; none if it is not a JSON object."""
    try:
        content = json.loads(read_body(response, ERROR_BYTES_MAX))
    # RecursionError: JSON that is nested deeply, by a server that means no good.
    except (ValueError, RecursionError, Refused, urllib3.exceptions.HTTPError):
        close(response)
        return {}
    return content if isinstance(content, dict) else {}


def refusal_text(status: int, content: dict[str, Any]) -> str:
    """Return an error in words: its status, the server's detail, and the id in the server's log."""
    detail, number = content.get("detail"), content.get("id")
    text = f"HTTP {status}"
    if isinstance(detail, str) and detail:
        text += f": {detail[:ERROR_DETAIL_CHARS_MAX]}"
    return (
        f"{text} (id {number[:ERROR_DETAIL_CHARS_MAX]})"
        if isinstance(number, str) and number
        else text
    )


def final_text(status: int, content: dict[str, Any]) -> str:
    """Return a final error in words: what people have to know first, the HTTP status last."""
    detail = content.get("detail")
    if not isinstance(detail, str) or not detail:
        return refusal_text(status, content)
    detail = detail[:ERROR_DETAIL_CHARS_MAX]
    for phrase, plain in _PLAIN_PHRASES:
        detail = re.sub(phrase, plain, detail)
    return f"{detail} (HTTP {status})"


def retry_after_seconds(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, at most RETRY_AFTER_SECONDS_MAX, or None.

    Its value is a number of seconds or a date (RFC 9110, section 10.2.3); any other is ignored.
    """
    if value is None:
        return None
    if re.fullmatch(r"\s*[0-9]{1,15}\s*", value):
        return min(float(value), RETRY_AFTER_SECONDS_MAX)
    try:
        seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (TypeError, ValueError, OverflowError, OSError):  # TypeError on Python 3.9
        return None
    return min(max(0.0, seconds), RETRY_AFTER_SECONDS_MAX)
