"""Large blobs on their way in: whole, or in pieces that a client goes on with after whatever broke off."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from tbservice import limits
from tbservice.api.http.body import spool_body, spool_body_parts
from tbservice.api.http.dependencies import MayAppend, UsesDatabase, UsesObjects
from tbservice.errors import Invalid, Unavailable
from tbservice.ingest import blob_uploads, blobs
from tbservice.ingest.blob_completion import BlobState
from tbservice.types import INT64_MAX

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["uploads"])

Sha256 = Annotated[
    str, Path(pattern="^[0-9A-Fa-f]{64}$", description="The blob's SHA-256: 64 hexadecimal digits")
]

Repair = Annotated[
    bool, Query(description="Replace the blob's object even where it is stored: it may be damaged")
]


class BlobStateAnswer(BaseModel):
    """How far a blob has come."""

    is_stored: bool = Field(
        description="Whether a batch may name the blob: with a workspace's token, when the workspace has it; with a "
        "token of the experiment, when it was put through the experiment. Its object is there, with its size"
    )
    received_bytes: int = Field(
        description="Bytes from the blob's start that are there: send the piece at this offset"
    )
    piece_bytes: int = Field(description="Bytes of a piece; only the last is shorter")


@router.get("/blobs/{sha256}")
def get_blob_state(
    grant: MayAppend,
    sha256: Sha256,
    database: UsesDatabase,
    objects: UsesObjects,
    size: Annotated[int, Query(ge=1, le=INT64_MAX, description="The blob's size in bytes")],
    repair: Repair = False,
) -> BlobStateAnswer:
    """Whether a blob has to be sent at all, and where to go on with one that was begun."""
    return _answer(
        blob_uploads.get_state(
            database, objects, grant, bytes.fromhex(sha256), size, is_repair=repair
        )
    )


@router.put(
    "/blobs/{sha256}",
    responses={
        200: {"model": BlobStateAnswer, "description": "A piece was kept"},
        204: {"description": "The whole blob was kept"},
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
            description="Where the piece begins: a multiple of `piece_bytes`; absent for a whole blob",
        ),
    ] = None,
    size: Annotated[
        int | None,
        Query(ge=1, le=INT64_MAX, description="The whole blob's size in bytes; with `offset` only"),
    ] = None,
    repair: Repair = False,
) -> Response:
    """Keeps a blob, or a piece of one, which a batch may name when all of it is there. Sending it again is fine.

    The bytes of a blob are stored once in a workspace. A token of one experiment may name a blob only when it was put
    through that experiment, which proves that its holder has the bytes.
    """
    digest = bytes.fromhex(sha256)
    if (offset is None) != (size is None):
        raise Invalid("a piece of a blob has both an offset and the whole blob's size")
    if offset is not None and size is not None:
        async with spool_body(request, limits.BLOB_PART_BYTES, limits.BLOB_PART_SECONDS_MAX) as (
            file,
            length,
        ):
            keep_piece = partial(blob_uploads.store_part, is_repair=repair)
            state = await run_in_threadpool(
                keep_piece, database, objects, grant, digest, size, offset, file, length
            )
        return Response(_answer(state).model_dump_json(), media_type="application/json")
    if _content_length(request) > limits.BLOB_PART_BYTES:
        await _store_in_parts(grant, digest, request, database, objects, is_repair=repair)
    else:
        async with spool_body(request, limits.BLOB_BYTES_MAX, limits.BLOB_SECONDS_MAX) as (
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
    """A large blob that was sent whole, as its pieces arrive, so that none is larger on disk or in memory."""
    size, offset, state = _content_length(request), 0, BlobState(is_stored=False, received_bytes=0)
    async for file, length in spool_body_parts(
        request, limits.BLOB_PART_BYTES, limits.BLOB_BYTES_MAX, limits.BLOB_SECONDS_MAX
    ):
        keep_piece = partial(blob_uploads.store_part, is_repair=is_repair)
        state = await run_in_threadpool(
            keep_piece, database, objects, grant, digest, size, offset, file, length
        )
        offset += length
    if not state.is_stored:
        raise Unavailable("a part of the blob was lost while the others came; send it again")


def _answer(state: BlobState) -> BlobStateAnswer:
    return BlobStateAnswer(
        is_stored=state.is_stored,
        received_bytes=state.received_bytes,
        piece_bytes=limits.BLOB_PART_BYTES,
    )


def _content_length(request: Request) -> int:
    """The body's size as the client announced it; 0 when it did not."""
    announced = request.headers.get("content-length", "")
    return int(announced) if announced.isascii() and announced.isdigit() else 0
