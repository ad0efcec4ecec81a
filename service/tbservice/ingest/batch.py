"""The plain values of a decoded batch: segments, their series, and the blobs that they contain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tbservice.store.scalar_format import ScalarPoints
from tbservice.store.upload_streams import stream_digest
from tbservice.types import DataClass, Float64s, Int64s, ObjectReference, Stream, TensorValue


@dataclass(frozen=True, slots=True)
class InlineBlob:
    """A blob that came inside the batch."""

    sha256: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class ReferencedBlob:
    """A blob that was put before; `size` in bytes."""

    sha256: bytes
    size: int


SentBlob = InlineBlob | ReferencedBlob


@dataclass(frozen=True, slots=True)
class TensorPoints:
    """Columns of tensor points, all of one length."""

    steps: Int64s
    wall_times: Float64s
    tensors: Sequence[TensorValue]


@dataclass(frozen=True, slots=True)
class BlobSequencePoints:
    """Columns of blob sequence points, all of one length."""

    steps: Int64s
    wall_times: Float64s
    sequences: Sequence[Sequence[SentBlob]]


SentPoints = ScalarPoints | TensorPoints | BlobSequencePoints


@dataclass(frozen=True, slots=True)
class SentMetadata:
    """A series' summary metadata: what decides about the series, and the whole as it was serialized."""

    plugin: str
    data_class: DataClass
    serialized: bytes


@dataclass(frozen=True, slots=True)
class SentSeries:
    """What a segment holds of one tag; `metadata` is None where the client has had it acknowledged before."""

    tag: str
    metadata: SentMetadata | None
    points: SentPoints

    @property
    def data_class(self) -> DataClass:
        """What the points are, whatever the metadata says."""
        if isinstance(self.points, ScalarPoints):
            return DataClass.SCALAR
        return (
            DataClass.TENSOR if isinstance(self.points, TensorPoints) else DataClass.BLOB_SEQUENCE
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes [start, end) of a stream and what was read there; `index` is its place in the batch.

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
    """Every blob that came inside these segments."""
    return (blob for blob in _iter_blobs(segments) if isinstance(blob, InlineBlob))


def iter_referenced_blobs(segments: Sequence[Segment]) -> Iterator[ReferencedBlob]:
    """Every blob that must have been put before; the objects of tensors are some."""
    yield from (blob for blob in _iter_blobs(segments) if isinstance(blob, ReferencedBlob))
    for _, reference in iter_referenced_tensors(segments):
        yield ReferencedBlob(reference.sha256, reference.size)


def iter_referenced_tensors(
    segments: Sequence[Segment],
) -> Iterator[tuple[TensorValue, ObjectReference]]:
    """Every tensor whose bytes are an object, and which."""
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
