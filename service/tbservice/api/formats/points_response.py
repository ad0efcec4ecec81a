"""Responses with points: samples and full scans in the negotiated format."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fastapi import Response

from tbservice import limits
from tbservice.api.formats import (
    MEDIA_TYPES,
    Format,
    encode_points,
    json_encoding,
)
from tbservice.api.formats.json_format import encode_samples
from tbservice.api.http.openapi_errors import NOT_ACCEPTABLE, OBJECT_MISSING, Responses
from tbservice.api.http.streaming import refuse_unread, stream_response
from tbservice.db.database import Database
from tbservice.objects.object_store import ObjectStore
from tbservice.reading import catalog
from tbservice.reading.full_scan import SeriesChunk, stream_all
from tbservice.reading.loaded_chunks import LostPoint, load_intact_chunks, load_tensors
from tbservice.reading.sample_chunks import estimate_bytes, make_chunks, split_chunks
from tbservice.reading.tensor_objects import load_samples
from tbservice.samples import Sample
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Sampling, SamplingRule, Selection
from tbservice.types.series import Series
from tbwire.points import DataClass

SAMPLING_HEADER: Final = "Tbhub-Sampling"
"""Header of every response with points, in any format."""

RESPONSES: Final[Responses] = {
    200: {
        "description": "The points. With `sampling=all` and no `last`, they are streamed while "
        "they are read, and large samples while they are encoded: a truncated response ends "
        "without HTTP's last chunk. Each series is in the state of the moment when it was read. "
        f"The header `{SAMPLING_HEADER}` has the sampling rule and, except for `all`, the numbers "
        "of points kept and in total.",
        "content": {
            media_type.partition(";")[0]: {
                "schema": {"type": "object"}
                if format_ is Format.JSON
                else {"type": "string", "format": "binary"}
            }
            for format_, media_type in MEDIA_TYPES.items()
        },
    },
    **NOT_ACCEPTABLE,
    **OBJECT_MISSING,
}


@dataclass(frozen=True, slots=True)
class PointsRequest:
    """Requested points and their format; `indices` select among the blobs of each point.

    With `attempt`, runs with more attempts are read as they were before the next one.
    With `names_lost`, for full scans only, points with a tensor that cannot be loaded are omitted
    and listed in the response. `with_metadata` adds the summary metadata of each series.
    """

    selection: Selection
    data_class: DataClass
    sampling: Sampling
    format: Format
    indices: slice
    names_lost: bool = False
    with_metadata: bool = False
    attempt: int | None = None

    @property
    def is_full_scan(self) -> bool:
        """Return whether all points in the range of steps are requested."""
        return self.sampling.rule is SamplingRule.ALL and self.sampling.last is None


def make_points_response(
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    points_request: PointsRequest,
) -> Response:
    """Return a response with the requested points.

    Full scans are streamed while they are read, and large samples while they are encoded: as text,
    tensors take many times their size in memory.

    Args:
        database: Database that opens the snapshots.
        objects: Object store, for tensors that are objects.
        grant: Experiment to read.
        points_request: Points and format.

    Raises:
        TooManyRequests: The caller does not read its responses, or has too many streams.
    """
    rule = json_encoding.sampling_name(points_request.sampling)
    media_type = MEDIA_TYPES[Format.POINTS if points_request.names_lost else points_request.format]
    encode = _make_encoder(objects, points_request, rule)
    if points_request.is_full_scan:
        headers = {SAMPLING_HEADER: rule}
        return stream_response(
            lambda: encode(_full_scan(database, grant, points_request)), headers, media_type
        )

    with database.snapshot(grant) as db:
        samples = catalog.read_samples(
            db,
            grant,
            points_request.data_class,
            points_request.selection,
            points_request.sampling,
            points_request.indices,
            points_request.attempt,
        )
        size = estimate_bytes(samples)
        # The estimate is without metadata, which CSV has on each line.
        must_stream = size > limits.SCAN_CHUNK_BYTES or points_request.with_metadata
        if not must_stream:
            refuse_unread(size)
        is_small_json = points_request.format is Format.JSON and not must_stream
        chunks = [] if is_small_json else make_chunks(db, grant, samples)

    headers = {SAMPLING_HEADER: _sampling_header(rule, samples)}
    if is_small_json:
        loaded = load_samples(objects, samples)
        return Response(
            encode_samples(loaded, rule), headers=headers, media_type="application/json"
        )
    if must_stream:
        return stream_response(lambda: encode(split_chunks(chunks)), headers, media_type, size)
    return Response(b"".join(encode(chunks)), headers=headers, media_type=media_type)


def _make_encoder(
    objects: ObjectStore,
    points_request: PointsRequest,
    rule: str,
) -> Callable[[Iterable[SeriesChunk]], Iterator[bytes]]:
    """Return a function that loads and encodes chunks in the requested format."""

    def encode(chunks: Iterable[SeriesChunk]) -> Iterator[bytes]:
        lost: deque[LostPoint] | None = deque() if points_request.names_lost else None
        return encode_points(
            points_request.format,
            points_request.data_class,
            load_tensors(objects, chunks)
            if lost is None
            else load_intact_chunks(objects, chunks, lost.append),
            rule,
            with_metadata=points_request.with_metadata,
            lost=lost,
        )

    return encode


def _full_scan(
    database: Database, grant: ReadGrant, points_request: PointsRequest
) -> Iterator[SeriesChunk]:
    return stream_all(
        database,
        grant,
        points_request.selection,
        points_request.data_class,
        points_request.sampling.steps,
        points_request.indices,
        points_request.attempt,
    )


def _sampling_header(rule: str, samples: Iterable[tuple[Series, Sample]]) -> str:
    """Return rule and numbers of points, for which not every format has fields."""
    kept = sum(len(sample.steps) for _, sample in samples)
    return f"{rule}; kept={kept}; total={sum(sample.total for _, sample in samples)}"
