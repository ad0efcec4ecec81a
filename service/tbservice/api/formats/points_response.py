"""Answers with points: samples whole, everything as a stream, both in the format that is wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Response
from sqlalchemy import Connection

from tbservice import limits
from tbservice.api.formats import MEDIA_TYPES, Format, encode, encode_naming_lost, json_encoding
from tbservice.api.http.openapi_errors import NOT_ACCEPTABLE, OBJECT_MISSING, Responses
from tbservice.api.http.streaming import stream
from tbservice.reading.full_scan import LostPoint, Part, Sample, load_intact_parts, load_parts, read_whole
from tbservice.reading.sample_chunks import in_pieces, parts_of, size_of
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
                "schema": {"type": "object"} if one is Format.JSON else {"type": "string", "format": "binary"}
            }
            for one, media_type in MEDIA_TYPES.items()
        },
    },
    **NOT_ACCEPTABLE,
    **OBJECT_MISSING,
}


@dataclass(frozen=True, slots=True)
class Wanted:
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
    def is_everything(self) -> bool:
        """Whether nothing in the range of steps is left out."""
        return self.sampling.rule is SamplingRule.ALL and self.sampling.last is None


def answer(
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    wanted: Wanted,
    read: Callable[[Connection], Mapping[str, Mapping[str, _OneKind]]],
    values_of: Callable[[_OneKind], Any],
) -> Response:
    """The points that `read` samples in a snapshot, or all of them; `values_of` gives a sample's values as JSON.

    What is large is sent while it is made: as text, tensors take many times their bytes.
    """
    rule = json_encoding.sampling_name(wanted.sampling)

    def pieces(parts: Iterable[Part]) -> Iterator[bytes]:
        def as_json(sample: Any) -> dict[str, Any]:
            return json_encoding.columns(sample, values_of(sample), rule)

        if wanted.names_lost:
            lost: deque[LostPoint] = deque()
            intact = load_intact_parts(objects, parts, lost.append)
            return encode_naming_lost(wanted.format, wanted.data_class, intact, lost, rule, as_json)
        return encode(wanted.format, wanted.data_class, load_parts(objects, parts), rule, as_json)

    media_type = MEDIA_TYPES[Format.POINTS if wanted.names_lost else wanted.format]
    if wanted.is_everything:
        whole = (grant, wanted.selection, wanted.data_class, wanted.sampling.steps, wanted.indices)
        headers = {**_HEADERS, SAMPLING_HEADER: rule}
        return stream(lambda: pieces(read_whole(database, *whole)), headers, media_type)
    with database.snapshot(grant.workspace_id) as db:
        samples = read(db)
        plain: Mapping[str, Mapping[str, Sample]] = samples
        size = size_of(plain)
        must_stream = size > limits.piece_bytes
        is_plain = wanted.format is Format.JSON and not must_stream
        parts = [] if is_plain else parts_of(db, grant, wanted.selection, wanted.data_class, plain)
    headers = {**_HEADERS, SAMPLING_HEADER: _said(rule, plain)}
    if is_plain:
        loaded = load_samples(objects, samples)
        response = json_encoding.json_response(json_encoding.by_run_and_tag(loaded, wanted.sampling, values_of))
        response.headers.update(headers)
        return response
    if must_stream:
        return stream(lambda: pieces(in_pieces(parts)), headers, media_type, size)
    return Response(b"".join(pieces(parts)), headers=headers, media_type=media_type)


def _said(rule: str, samples: Mapping[str, Mapping[str, Sample]]) -> str:
    """The rule of an answer, how many points it keeps, and of how many: not every format has a place for them."""
    every = [sample for tags in samples.values() for sample in tags.values()]
    return f"{rule}; kept={sum(len(one.steps) for one in every)}; total={sum(one.total for one in every)}"
