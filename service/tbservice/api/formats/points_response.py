"""Answers with points: samples whole, everything as a stream, both in the format that is wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Response
from sqlalchemy import Connection

from tbservice import limits
from tbservice.api.formats import (
    MEDIA_TYPES,
    Format,
    encode_naming_lost,
    encode_points,
    json_encoding,
)
from tbservice.api.http.openapi_errors import NOT_ACCEPTABLE, OBJECT_MISSING, Responses
from tbservice.api.http.streaming import stream_response
from tbservice.reading.full_scan import (
    LostPoint,
    Sample,
    SeriesChunk,
    load_intact_parts,
    load_tensors,
    stream_all,
)
from tbservice.reading.sample_chunks import estimate_bytes, make_chunks, split_chunks
from tbservice.reading.tensor_objects import load_samples
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import (
    BlobSequenceSample,
    DataClass,
    ReadGrant,
    Sampling,
    SamplingRule,
    ScalarSample,
    Selection,
    TensorSample,
)

_OneKind = TypeVar("_OneKind", ScalarSample, TensorSample, BlobSequenceSample)

SAMPLING_HEADER: Final = "Tbhub-Sampling"
"""Of every answer with points, whatever its format."""

_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}  # a browser shows none of these as a page

RESPONSES: Final[Responses] = {
    200: {
        "description": "The points. With `sampling=all`, and no `last`, they are sent while they are read, and large "
        "samples while they are encoded: an answer that is cut off ends without HTTP's last chunk. A series is given "
        f"as it stood when it was read. The header `{SAMPLING_HEADER}` has the rule by which points were chosen and, "
        "but for `all`, how many were kept of how many.",
        "content": {
            media_type.partition(";")[0]: {
                "schema": {"type": "object"}
                if one is Format.JSON
                else {"type": "string", "format": "binary"}
            }
            for one, media_type in MEDIA_TYPES.items()
        },
    },
    **NOT_ACCEPTABLE,
    **OBJECT_MISSING,
}


@dataclass(frozen=True, slots=True)
class PointsRequest:
    """Which points, and in which format; `indices` choose among the blobs of each point.

    With `names_lost`, points whose tensor cannot be loaded are left out and named: this goes with everything alone.
    """

    selection: Selection
    data_class: DataClass
    sampling: Sampling
    format: Format
    indices: slice
    names_lost: bool = False

    @property
    def is_full_scan(self) -> bool:
        """Whether nothing in the range of steps is left out."""
        return self.sampling.rule is SamplingRule.ALL and self.sampling.last is None


def make_points_response(
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    points_request: PointsRequest,
    read: Callable[[Connection], Mapping[str, Mapping[str, _OneKind]]],
    values_of: Callable[[_OneKind], Any],
) -> Response:
    """The points that `read` samples in a snapshot, or all of them; `values_of` gives a sample's values as JSON.

    What is large is sent while it is made: as text, tensors take many times their bytes.
    """
    rule = json_encoding.sampling_name(points_request.sampling)

    def pieces(chunks: Iterable[SeriesChunk]) -> Iterator[bytes]:
        def as_json(sample: Any) -> dict[str, Any]:
            return json_encoding.sample_to_json(sample, values_of(sample), rule)

        if points_request.names_lost:
            lost: deque[LostPoint] = deque()
            intact = load_intact_parts(objects, chunks, lost.append)
            return encode_naming_lost(
                points_request.format, points_request.data_class, intact, lost, rule, as_json
            )
        return encode_points(
            points_request.format,
            points_request.data_class,
            load_tensors(objects, chunks),
            rule,
            as_json,
        )

    media_type = MEDIA_TYPES[Format.POINTS if points_request.names_lost else points_request.format]
    if points_request.is_full_scan:
        whole = (
            grant,
            points_request.selection,
            points_request.data_class,
            points_request.sampling.steps,
            points_request.indices,
        )
        headers = {**_HEADERS, SAMPLING_HEADER: rule}
        return stream_response(lambda: pieces(stream_all(database, *whole)), headers, media_type)
    with database.snapshot(grant.workspace_id) as db:
        samples = read(db)
        plain: Mapping[str, Mapping[str, Sample]] = samples
        size = estimate_bytes(plain)
        must_stream = size > limits.SCAN_CHUNK_BYTES
        is_plain = points_request.format is Format.JSON and not must_stream
        chunks = (
            []
            if is_plain
            else make_chunks(db, grant, points_request.selection, points_request.data_class, plain)
        )
    headers = {**_HEADERS, SAMPLING_HEADER: _sampling_header(rule, plain)}
    if is_plain:
        loaded = load_samples(objects, samples)
        response = json_encoding.json_response(
            json_encoding.samples_to_json(loaded, points_request.sampling, values_of)
        )
        response.headers.update(headers)
        return response
    if must_stream:
        return stream_response(lambda: pieces(split_chunks(chunks)), headers, media_type, size)
    return Response(b"".join(pieces(chunks)), headers=headers, media_type=media_type)


def _sampling_header(rule: str, samples: Mapping[str, Mapping[str, Sample]]) -> str:
    """The rule of an answer, how many points it keeps, and of how many: not every format has a place for them."""
    every = [sample for tags in samples.values() for sample in tags.values()]
    return f"{rule}; kept={sum(len(one.steps) for one in every)}; total={sum(one.total for one in every)}"
