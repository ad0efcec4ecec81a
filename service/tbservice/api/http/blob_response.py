"""The response to a request for a blob, with Range and ETag (RFC 9110)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from fastapi import Request, Response
from starlette.responses import StreamingResponse

from tbservice.admission import admitted
from tbservice.api.http.etag import has_current_copy
from tbservice.api.http.head_requests import wants_body
from tbservice.objects.object_store import ObjectStore
from tbservice.types.series import Blob

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

# Blobs are untrusted: a browser may show one, but must not run scripts in it. Browsers must
# revalidate their copy each time although the bytes never change, because the right to read them
# can end. A 304 does not read from S3.
_HEADERS: Final = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
    "Vary": "Authorization, Cookie",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


def blob_response(objects: ObjectStore, blob: Blob, request: Request) -> Response:
    """Return the response to a request for a blob, which the caller may read.

    The status is 200 or, as in RFC 9110, 206 for a range, 304 if the client's copy is current, and
    416 if the range is outside the blob. The bytes are streamed.
    """
    headers = {**_HEADERS, "ETag": f'"{blob.sha256}"'}
    if has_current_copy(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)

    start, end = _parse_range(request, blob)
    if start >= end and blob.size:
        return Response(
            status_code=416, headers={**headers, "Content-Range": f"bytes */{blob.size}"}
        )

    is_partial = (start, end) != (0, blob.size)
    if is_partial:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    headers["Content-Length"] = str(end - start)
    chunks: Iterator[bytes] = (
        objects.read(blob.object_key, start, end) if wants_body(request) else iter(())
    )
    return StreamingResponse(
        admitted.iterate_in_turns(chunks), 206 if is_partial else 200, headers, blob.content_type
    )


def _parse_range(request: Request, blob: Blob) -> tuple[int, int]:
    """Return the requested bytes [start, end) (RFC 9110, section 14.2).

    All bytes if there is no range, several ranges, an invalid one, or an `If-Range` that does not
    match; `start >= end` if the range is outside the blob.
    """
    match = _RANGE.fullmatch(request.headers.get("range", "").strip())
    if_range = request.headers.get("if-range", f'"{blob.sha256}"')
    if (
        match is None
        or match.group(0) == "bytes=-"
        or if_range != f'"{blob.sha256}"'
        or not blob.size
    ):
        return 0, blob.size

    first, last = match.groups()
    # RFC 9110, section 14.1.2: longer than the blob means all of it.
    if not first:  # a suffix range: the last `last` bytes
        return max(0, blob.size - int(last)), blob.size
    end = min(int(last) + 1, blob.size) if last else blob.size
    return int(first), end
