"""Routes for uploaders: write a batch, list upload cursors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field

from tbservice import limits, metrics
from tbservice.admission import admitted
from tbservice.api.http.body import decompress, is_small_body, read_body
from tbservice.api.http.dependencies import MayAppend, UsesDatabase, UsesIngest, UsesSettings
from tbservice.api.http.grant_route import look_up_grants
from tbservice.api.http.routers import make_router
from tbservice.api.v1.experiments.experiment_schemas import experiment_url
from tbservice.errors import MalformedRequest
from tbservice.ingest.commit import CommitResult
from tbservice.ingest.service import list_cursors
from tbservice.types.series import Cursor
from tbwire import wire_pb2

router = make_router(prefix="/api/v1/experiments/{experiment_id}", tags=["uploads"])

_PROTOBUF = "application/x-protobuf"
_BINARY = {"type": "string", "format": "binary"}


class StreamAnswer(BaseModel):
    """The upload cursor of one stream (an event file, read with one set of filters)."""

    run: str
    file_name: str
    first_record_digest: str = Field(
        description="SHA-256 of the file's first record, in hexadecimal"
    )
    generation: int = Field(
        description="Version of the file: greater by one after it was truncated or replaced"
    )
    filters_digest: str = Field(
        description="SHA-256 of the filters that the file is read with, in hexadecimal"
    )
    offset: int = Field(description="Committed bytes, from the start of the file")
    checksum: int = Field(description="CRC-32C of the (at most 1,024) bytes before the offset")
    skipped: dict[str, int] = Field(
        description="Number of items that were skipped so far instead of stored, by reason"
    )


class StreamPage(BaseModel):
    """A page of an experiment's upload cursors, with the limits of uploads."""

    experiment_id: str
    url: str = Field(description="The experiment's TensorBoard page")
    limits: dict[str, int] = Field(description="The server's limits on batches, by name")
    streams: list[StreamAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


async def _batch_body(request: Request) -> bytes:
    """Return the body, before a database connection is taken; a large one after the grant.

    The route names its grant first, which is pending then: FastAPI takes 30 µs to find it twice.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type != _PROTOBUF:
        raise MalformedRequest(f"send the batch with the header Content-Type: {_PROTOBUF}")
    if not is_small_body(request):
        await look_up_grants(request)
    with metrics.time_batch_phase("body"):
        return await read_body(request, limits.BATCH_BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)


@router.post(
    "/batches",
    responses={
        200: {
            "content": {_PROTOBUF: {"schema": _BINARY}},
            "description": "A protobuf WriteResult, with the new upload cursors",
        }
    },
    openapi_extra={
        "requestBody": {
            "content": {_PROTOBUF: {"schema": _BINARY}},
            "description": "A protobuf WriteBatch; with `Content-Encoding: gzip`, compressed",
        }
    },
    response_class=Response,
)
def write_batch(
    grant: MayAppend,
    body: Annotated[bytes, Depends(_batch_body)],
    request: Request,
    ingest: UsesIngest,
) -> Response:
    """Commit a batch completely, or refuse it completely.

    Segments before the stream's upload cursor are skipped, so that a batch can be sent again.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    content = decompress(body, encoding, limits.BATCH_BYTES_MAX)
    metrics.observe_batch_size(len(body), len(content))
    result = ingest.accept(grant, content, _reserve_decoded_bytes)
    return Response(_result_message(result).SerializeToString(), media_type=_PROTOBUF)


def _reserve_decoded_bytes(size: int) -> AbstractContextManager[None]:
    """Reserve memory for a decoded batch within the caller's share, waiting if necessary."""
    return admitted.wait_in_thread(admitted.current().shares.decoded_bytes, size)


@router.get("/streams")
def list_streams(
    grant: MayAppend,
    database: UsesDatabase,
    settings: UsesSettings,
    after: Annotated[str, Query(description="`next` of the previous page")] = "",
    limit: Annotated[
        int, Query(ge=1, le=limits.STREAMS_PAGE_ITEMS_MAX, description="Maximum streams per page")
    ] = limits.STREAMS_PAGE_ITEMS_MAX,
) -> StreamPage:
    """List the experiment's upload cursors, from which an upload resumes on any machine."""
    with database.snapshot(grant) as db:
        page, following = list_cursors(db, grant, after, limit)
    return StreamPage(
        experiment_id=grant.experiment_id,
        url=experiment_url(settings, grant.experiment_id),
        limits=wire_limits(),
        streams=[_stream_answer(cursor) for cursor in page],
        next=following,
    )


def wire_limits() -> dict[str, int]:
    """Return the limits that uploaders must respect: the fields of the wire message `Limits`."""
    return {
        field.name: getattr(limits, field.name.upper())
        for field in wire_pb2.Limits.DESCRIPTOR.fields
    }


def _stream_answer(cursor: Cursor) -> StreamAnswer:
    fields: dict[str, Any] = asdict(cursor.stream)
    fields["first_record_digest"] = cursor.stream.first_record_digest.hex()
    fields["filters_digest"] = cursor.stream.filters_digest.hex()
    return StreamAnswer(
        **fields, offset=cursor.offset, checksum=cursor.checksum, skipped=cursor.skipped
    )


def _result_message(result: CommitResult) -> wire_pb2.WriteResult:
    return wire_pb2.WriteResult(
        cursors=[_cursor_message(cursor) for cursor in result.cursors],
        scalars=result.counts.scalars,
        tensors=result.counts.tensors,
        blobs=result.counts.blobs,
        limits=wire_pb2.Limits(**wire_limits()),
    )


def _cursor_message(cursor: Cursor) -> wire_pb2.Cursor:
    return wire_pb2.Cursor(
        stream=wire_pb2.Stream(**asdict(cursor.stream)),
        offset=cursor.offset,
        checksum=cursor.checksum,
        skipped=[
            wire_pb2.Skipped(reason=reason, count=count) for reason, count in cursor.skipped.items()
        ],
    )
