"""What an uploader sends and asks: batches and cursors."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from tbservice import limits, metrics
from tbservice.admission import admitted
from tbservice.api.http.body import decompress, read_body
from tbservice.api.http.dependencies import MayAppend, UsesDatabase, UsesIngest, UsesSettings
from tbservice.api.v1.experiments import experiment_url
from tbservice.errors import MalformedRequest
from tbservice.ingest import upload_cursors
from tbservice.ingest.commit import CommitResult
from tbservice.types import Cursor, Stream
from tbwire import wire_pb2

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}", tags=["uploads"])

_PROTOBUF = "application/x-protobuf"
_BINARY = {"type": "string", "format": "binary"}


class StreamAnswer(BaseModel):
    """How far one event file has been committed."""

    run: str
    file_name: str
    first_record_digest: str = Field(
        description="SHA-256 of the file's first record, in hexadecimal"
    )
    generation: int
    filters_digest: str = Field(description="SHA-256 of the filters in force, in hexadecimal")
    offset: int = Field(description="Bytes of the file committed so far")
    checksum: int = Field(description="CRC-32C of the (at most 1,024) bytes before the offset")
    skipped: dict[str, int] = Field(
        description="What could not be kept so far: how many, by reason"
    )


class StreamPage(BaseModel):
    """A page of an experiment's streams, with what an uploader must know to go on."""

    experiment_id: str
    url: str
    limits: dict[str, int]
    streams: list[StreamAnswer]
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end")


async def _batch_body(_grant: MayAppend, request: Request) -> bytes:
    """The body, read only when the grant is there, and before any connection is taken."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if content_type != _PROTOBUF:
        raise MalformedRequest(f"a batch is sent as Content-Type: {_PROTOBUF}")
    with metrics.time_batch_phase("body"):
        return await read_body(request, limits.BATCH_BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)


@router.post(
    "/batches",
    responses={200: {"content": {_PROTOBUF: {"schema": _BINARY}}, "description": "A WriteResult"}},
    openapi_extra={
        "requestBody": {
            "content": {_PROTOBUF: {"schema": _BINARY}},
            "description": "A WriteBatch, as is or as gzip",
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
    """Commits a batch whole, or refuses it whole. Sending it again changes nothing."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    content = decompress(body, encoding, limits.BATCH_BYTES_MAX)
    metrics.observe_batch_size(len(body), len(content))
    outcome = ingest.accept(grant, content, _hold_decoding)
    return Response(_result(outcome).SerializeToString(), media_type=_PROTOBUF)


def _hold_decoding(size: int) -> AbstractContextManager[None]:
    return admitted.wait_in_thread(admitted.current().shares.decoded_bytes, size)


@router.get("/streams")
def list_streams(
    grant: MayAppend,
    database: UsesDatabase,
    settings: UsesSettings,
    after: Annotated[str, Query(description="The `next` of the page before")] = "",
    limit: Annotated[
        int, Query(ge=1, le=limits.STREAMS_PAGE_ITEMS_MAX)
    ] = limits.STREAMS_PAGE_ITEMS_MAX,
) -> StreamPage:
    """How far each event file has been committed: where an uploader goes on, from any machine."""
    with database.snapshot(grant.workspace_id) as db:
        page, following = upload_cursors.list_cursors(db, grant, after, limit)
    return StreamPage(
        experiment_id=grant.experiment_id,
        url=experiment_url(settings, grant.experiment_id),
        limits=wire_limits(),
        streams=[_stream_answer(cursor) for cursor in page],
        next=following,
    )


def wire_limits() -> dict[str, int]:
    """What a client must keep to: the wire's `Limits`."""
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


def _result(outcome: CommitResult) -> wire_pb2.WriteResult:
    return wire_pb2.WriteResult(
        cursors=[_cursor_message(cursor) for cursor in outcome.cursors],
        scalars=outcome.counts.scalars,
        tensors=outcome.counts.tensors,
        blobs=outcome.counts.blobs,
        limits=wire_pb2.Limits(**wire_limits()),
    )


def _cursor_message(cursor: Cursor) -> wire_pb2.Cursor:
    return wire_pb2.Cursor(
        stream=_stream_message(cursor.stream),
        offset=cursor.offset,
        checksum=cursor.checksum,
        skipped=[
            wire_pb2.Skipped(reason=reason, count=count) for reason, count in cursor.skipped.items()
        ],
    )


def _stream_message(stream: Stream) -> wire_pb2.Stream:
    return wire_pb2.Stream(
        run=stream.run,
        file_name=stream.file_name,
        first_record_digest=stream.first_record_digest,
        generation=stream.generation,
        filters_digest=stream.filters_digest,
    )
