"""Blobs over HTTP: their bytes with type, length, ETag and Range."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request, Response
from starlette.responses import StreamingResponse

from tbservice.admission import admitted
from tbservice.api.http.dependencies import Secret, UsesDatabase, UsesObjects
from tbservice.api.http.openapi_errors import OBJECT_MISSING
from tbservice.auth import grants
from tbservice.reading import blobs
from tbservice.store.objects import ObjectStore
from tbservice.types import Blob, ReadGrant

router = APIRouter(tags=["reading"])

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

# A blob is whatever a training job logged: a browser may show it, but nothing in it runs. A copy may be kept but is
# revalidated every time, although its bytes never change: the right to see them may end. A 304 does not touch S3.
_HEADERS: Final = {
    "Accept-Ranges": "bytes",
    "Cache-Control": "private, no-cache",
    "Vary": "Authorization, Cookie",
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}


def _may_read_blob(blob_key: str, database: UsesDatabase, secret: Secret) -> ReadGrant:
    with database.transaction() as db:
        return grants.grant_read(db, blobs.parse_blob_experiment(blob_key), secret)


@router.head("/data/blob/{blob_key}", response_class=Response, include_in_schema=False)
@router.head("/api/v1/blobs/{blob_key}", response_class=Response, include_in_schema=False)
@router.get("/data/blob/{blob_key}", response_class=Response, include_in_schema=False)
@router.get("/api/v1/blobs/{blob_key}", response_class=Response, responses=OBJECT_MISSING)
def read_blob(
    grant: Annotated[ReadGrant, Depends(_may_read_blob)],
    blob_key: str,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
) -> Response:
    """A blob's bytes, by the key that a blob sequence gave; whole, or a `Range` of them."""
    with database.snapshot(grant.workspace_id) as db:
        blob = blobs.find_blob(db, grant, blob_key)
    return blob_response(objects, blob, request)


def blob_response(objects: ObjectStore, blob: Blob, request: Request) -> Response:
    """The answer to a request for a blob: 200, 206 for a range, 304 for a copy that is still good, 416 for no range."""
    headers = {**_HEADERS, "ETag": f'"{blob.sha256}"'}
    if _has_copy(request, blob):
        return Response(status_code=304, headers=headers)
    start, end = _range(request, blob)
    if start >= end and blob.size:
        return Response(
            status_code=416, headers={**headers, "Content-Range": f"bytes */{blob.size}"}
        )
    is_part = (start, end) != (0, blob.size)
    if is_part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{blob.size}"
    headers["Content-Length"] = str(end - start)
    pieces: Iterator[bytes] = (
        iter(()) if request.method == "HEAD" else objects.read(blob.object_key, start, end)
    )
    return StreamingResponse(
        admitted.iterate_in_turns(pieces), 206 if is_part else 200, headers, blob.content_type
    )


def _has_copy(request: Request, blob: Blob) -> bool:
    tags = [
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("if-none-match", "").split(",")
    ]
    return f'"{blob.sha256}"' in tags or "*" in tags


def _range(request: Request, blob: Blob) -> tuple[int, int]:
    """The bytes [start, end) that are asked for: all of them unless there is one range that can be read."""
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
    if not first:  # the last so many bytes
        return max(0, blob.size - int(last)), blob.size
    end = min(int(last) + 1, blob.size) if last else blob.size
    return int(first), end
