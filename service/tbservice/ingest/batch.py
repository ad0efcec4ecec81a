"""The plain values of a decoded batch: segments, their series, and the blobs that they contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tbservice.samples import ObjectReference, TensorValue
from tbservice.series.tables.upload_streams import stream_digest
from tbservice.types.series import Stream
from tbwire.points import BlobSequencePoints, DataClass, ScalarPoints, TensorPoints


@dataclass(frozen=True, slots=True)
class InlineBlob:
    """A blob inside the batch."""

    sha256: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class ReferencedBlob:
    """A blob that was uploaded before; `size` in bytes."""

    sha256: bytes
    size: int


SentBlob = InlineBlob | ReferencedBlob


SentPoints = ScalarPoints | TensorPoints[TensorValue] | BlobSequencePoints[SentBlob]


@dataclass(frozen=True, slots=True)
class SentMetadata:
    """The summary metadata of a series: plugin, data class, and all of it serialized."""

    plugin: str
    data_class: DataClass
    serialized: bytes


class SentSeries(NamedTuple):
    """The points of one tag in a segment; `metadata` is None if it was sent before.

    `segment_index` and `segment_start` are those of the segment; 0 for points that came in none.
    With `follows_last_step`, scalars without steps of their own: step 0 means the one after the
    last of the series, once that is locked.
    """

    tag: str
    metadata: SentMetadata | None
    points: SentPoints
    segment_index: int = 0
    segment_start: int = 0
    follows_last_step: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes [start, end) of a stream and what was read there; `index` is that in the batch.

    `stream_digest` identifies the stream in its experiment.
    """

    index: int
    stream: Stream
    start: int
    end: int
    start_checksum: int
    end_checksum: int
    series: Sequence[SentSeries]
    skipped: dict[str, int]
    run_start_time: float
    stream_digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream_digest", stream_digest(self.stream))


def iter_inline_blobs(segments: Sequence[Segment]) -> Iterator[InlineBlob]:
    """Yield every blob inside these segments."""
    return (blob for blob in _iter_blobs(segments) if isinstance(blob, InlineBlob))


def iter_referenced_blobs(segments: Sequence[Segment]) -> Iterator[ReferencedBlob]:
    """Yield every blob that must have been uploaded before, including the objects of tensors."""
    yield from (blob for blob in _iter_blobs(segments) if isinstance(blob, ReferencedBlob))
    for _, reference in iter_referenced_tensors(segments):
        yield ReferencedBlob(reference.sha256, reference.size)


def iter_referenced_tensors(
    segments: Sequence[Segment],
) -> Iterator[tuple[TensorValue, ObjectReference]]:
    """Yield every tensor with its bytes in an object, and the reference to it."""
    for segment in segments:
        for series in segment.series:
            if isinstance(series.points, TensorPoints):
                for value in series.points.tensors:
                    if value.reference is not None:
                        yield value, value.reference


def _iter_blobs(segments: Sequence[Segment]) -> Iterator[SentBlob]:
    for segment in segments:
        for series in segment.series:
            if isinstance(series.points, BlobSequencePoints):
                for sequence in series.points.sequences:
                    yield from sequence
