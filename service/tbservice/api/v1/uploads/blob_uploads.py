"""Routes for uploading blobs, complete or in parts; an interrupted upload can be resumed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from tbservice import limits
from tbservice.api.http.body import announced_bytes, spool_body, spool_body_parts
from tbservice.api.http.dependencies import MayAppend, UsesDatabase, UsesObjects
from tbservice.api.http.routers import make_router
from tbservice.errors import Invalid, Unavailable
from tbservice.ingest import blob_uploads, blobs
from tbservice.ingest.blob_completion import BlobState
from tbservice.types.identifiers import INT64_MAX

BLOB_PART_SECONDS_MAX: Final = 900
"""Seconds a client may take to send one part of a blob."""

BLOB_SECONDS_MAX: Final = 3_600
"""Seconds a client may take to send one large blob."""

router = make_router(prefix="/api/v1/experiments/{experiment_id}", tags=["uploads"])

Sha256 = Annotated[
    str, Path(pattern="^[0-9A-Fa-f]{64}$", description="The blob's SHA-256: 64 hexadecimal digits")
]

Repair = Annotated[
    bool,
    Query(description="Store the blob again even if it is stored: its object may be damaged"),
]


class BlobStateAnswer(BaseModel):
    """The state of a blob's upload."""

    is_stored: bool = Field(
        description="Whether a batch may refer to the blob: its object exists in the workspace, "
        "with its size. With a token of an experiment, the blob must have been uploaded through "
        "that experiment"
    )
    received_bytes: int = Field(
        description="Bytes received from the start of the blob: send the part at this offset next"
    )
    piece_bytes: int = Field(description="Size of a part in bytes; only the last part is shorter")


@router.get("/blobs/{sha256}")
def get_blob_state(
    grant: MayAppend,
    sha256: Sha256,
    database: UsesDatabase,
    objects: UsesObjects,
    size: Annotated[int, Query(ge=1, le=INT64_MAX, description="The blob's size in bytes")],
    repair: Repair = False,
) -> BlobStateAnswer:
    """Return whether a blob must be uploaded and, if an upload has begun, where it resumes."""
    return _answer(
        blob_uploads.get_state(
            database, objects, grant, bytes.fromhex(sha256), size, is_repair=repair
        )
    )


@router.put(
    "/blobs/{sha256}",
    responses={
        200: {"model": BlobStateAnswer, "description": "A part was stored"},
        204: {"description": "The complete blob was stored"},
    },
    response_class=Response,
)
async def put_blob(
    grant: MayAppend,
    sha256: Sha256,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
    offset: Annotated[
        int | None,
        Query(
            ge=0,
            le=INT64_MAX,
            description="Offset of the part in the blob, in bytes: a multiple of `piece_bytes`; "
            "absent for a complete blob",
        ),
    ] = None,
    size: Annotated[
        int | None,
        Query(
            ge=1,
            le=INT64_MAX,
            description="Size of the complete blob in bytes; required with `offset`, and only then",
        ),
    ] = None,
    repair: Repair = False,
) -> Response:
    """Store a blob, or a part of one; repeating the request changes nothing.

    A batch may refer to the blob when all of it is stored. The bytes of a blob are stored once per
    workspace. With a token of an experiment, a batch may refer to a blob only if it was uploaded
    through that experiment: this proves that the client has the bytes.
    """
    digest = bytes.fromhex(sha256)
    if (offset is None) != (size is None):
        raise Invalid("give both 'offset' and 'size' for a part, or neither for a complete blob")

    if offset is not None and size is not None:
        async with spool_body(request, limits.BLOB_PART_BYTES, BLOB_PART_SECONDS_MAX) as (
            file,
            length,
        ):
            store_part = partial(blob_uploads.store_part, is_repair=repair)
            state = await run_in_threadpool(
                store_part, database, objects, grant, digest, size, offset, file, length
            )
        return Response(_answer(state).model_dump_json(), media_type="application/json")

    if (announced_bytes(request) or 0) > limits.BLOB_PART_BYTES:
        await _store_in_parts(grant, digest, request, database, objects, is_repair=repair)
    else:
        async with spool_body(request, limits.BLOB_BYTES_MAX, BLOB_SECONDS_MAX) as (
            file,
            length,
        ):
            await run_in_threadpool(blobs.store, database, objects, grant, digest, file, length)
    return Response(status_code=204)


async def _store_in_parts(
    grant: MayAppend,
    digest: bytes,
    request: Request,
    database: UsesDatabase,
    objects: UsesObjects,
    *,
    is_repair: bool,
) -> None:
    """Store a large blob that is sent in one request part by part, as its bytes arrive.

    So no more than a part is on local disk or in memory at a time.
    """
    size, offset = announced_bytes(request) or 0, 0
    state = BlobState(is_stored=False, received_bytes=0)
    async for file, length in spool_body_parts(
        request, limits.BLOB_PART_BYTES, limits.BLOB_BYTES_MAX, BLOB_SECONDS_MAX
    ):
        store_part = partial(blob_uploads.store_part, is_repair=is_repair)
        state = await run_in_threadpool(
            store_part, database, objects, grant, digest, size, offset, file, length
        )
        offset += length
    if not state.is_stored:
        raise Unavailable("a part of the blob was lost during the upload: send the blob again")


def _answer(state: BlobState) -> BlobStateAnswer:
    return BlobStateAnswer(
        is_stored=state.is_stored,
        received_bytes=state.received_bytes,
        piece_bytes=limits.BLOB_PART_BYTES,
    )
