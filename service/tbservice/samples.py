"""Points of a series that were read, by data class, and tensors as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from tbservice.types.series import Series
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints


@dataclass(frozen=True, slots=True)
class ScalarSample(ScalarPoints):
    """Points of a scalar series in step order, one per step, of `total` in the step range."""

    total: int


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The bytes of a tensor as an object: SHA-256, size in bytes, and the object's key if known."""

    sha256: bytes
    size: int
    object_key: str = ""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor as `tbwire.tensors` packs it; a legacy histogram also as serialized protobuf.

    With a `reference`, `data` is empty: `reading.tensor_objects.load` returns a copy with the data.
    """

    dtype: int
    shape: tuple[int, ...]
    data: bytes
    histogram: bytes | None = None
    reference: ObjectReference | None = None

    @property
    def size(self) -> int:
        """Bytes of the data, wherever it is stored."""
        return len(self.data) if self.reference is None else self.reference.size


@dataclass(frozen=True, slots=True)
class TensorSample(TensorPoints[TensorValue]):
    """Points of a tensor series in step order, one per step, of `total` in the step range."""

    total: int


@dataclass(frozen=True, slots=True)
class BlobSequenceSample(BlobSequencePoints[str]):
    """Points of a blob sequence series in step order, one per step, of `total` in the step range.

    `sequences` has the blob keys of each step, in order; `digests` has their SHA-256s.
    """

    digests: Sequence[Sequence[bytes]]
    total: int


Sample = ScalarSample | TensorSample | BlobSequenceSample

_S = TypeVar("_S")
Samples = list[tuple[Series, _S]]
"""Series, by run and then by tag, with a sample of each."""


def cut(sample: Sample, rows: slice) -> Sample:
    """Return some of the points of a sample; `total` stays that of the series."""
    names = (field.name for field in fields(sample) if field.name != "total")
    return replace(sample, **{name: getattr(sample, name)[rows] for name in names})
