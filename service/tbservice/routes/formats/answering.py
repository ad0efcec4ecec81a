"""Answers with points: samples whole, everything as a stream, both in the format that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from fastapi import Response
from sqlalchemy import Connection

from tbservice.domain.sampled import parts_of
from tbservice.domain.whole import Part, Sample, read_whole
from tbservice.routes import answers
from tbservice.routes.formats import MEDIA_TYPES, Format, encode
from tbservice.routes.formats.streaming import stream
from tbservice.routes.refusals import NOT_ACCEPTABLE, Responses
from tbservice.store.database import Database
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

_HEADERS: Final = {"X-Content-Type-Options": "nosniff"}  # a browser shows none of these as a page

RESPONSES: Final[Responses] = {
    200: {
        "description": "The points. With `sampling=all`, and no `last`, they are sent while they are read: an answer "
        "that is cut off ends without HTTP's last chunk. A series is given as it stood when it was read.",
        "content": {
            media_type.partition(";")[0]: {
                "schema": {"type": "object"} if one is Format.JSON else {"type": "string", "format": "binary"}
            }
            for one, media_type in MEDIA_TYPES.items()
        },
    },
    **NOT_ACCEPTABLE,
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which points, and in which format; `indices` choose among the blobs of each point."""

    selection: Selection
    data_class: DataClass
    sampling: Sampling
    format: Format
    indices: slice

    @property
    def is_everything(self) -> bool:
        """Whether nothing in the range of steps is left out."""
        return self.sampling.rule is SamplingRule.ALL and self.sampling.last is None


def answer(
    database: Database,
    grant: ReadGrant,
    wanted: Wanted,
    read: Callable[[Connection], Mapping[str, Mapping[str, _OneKind]]],
    values_of: Callable[[_OneKind], Any],
) -> Response:
    """The points that `read` samples in a snapshot, or all of them; `values_of` gives a sample's values as JSON."""
    rule = answers.sampling_name(wanted.sampling)

    def pieces(parts: Iterable[Part]) -> Iterator[bytes]:
        def as_json(sample: Any) -> dict[str, Any]:
            return answers.columns(sample, values_of(sample), rule)

        return encode(wanted.format, wanted.data_class, parts, rule, as_json)

    media_type = MEDIA_TYPES[wanted.format]
    if wanted.is_everything:
        whole = (grant, wanted.selection, wanted.data_class, wanted.sampling.steps, wanted.indices)
        return stream(lambda: pieces(read_whole(database, *whole)), _HEADERS, media_type)
    with database.snapshot(grant.workspace_id) as db:
        samples = read(db)
        if wanted.format is not Format.JSON:
            plain: Mapping[str, Mapping[str, Sample]] = samples
            parts = parts_of(db, grant, wanted.selection, wanted.data_class, plain)
    if wanted.format is Format.JSON:
        return answers.json_response(answers.by_run_and_tag(samples, wanted.sampling, values_of))
    return Response(b"".join(pieces(parts)), headers=_HEADERS, media_type=media_type)
