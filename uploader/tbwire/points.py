"""The points of a series as columns: one type per data class, for both sides of the wire.

Tensors and blobs differ on the two sides: the uploader has large ones in files, the server has
references to objects. So it is a parameter of the type.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar, Union

import numpy as np
import numpy.typing as npt

Steps = npt.NDArray[np.int64]
WallTimes = npt.NDArray[np.float64]
"""Seconds since the epoch."""

Rows = Union[npt.NDArray[np.bool_], npt.NDArray[np.int64], slice]
"""A mask, indices or a slice."""

SLOTS: Final[dict[str, bool]] = {"slots": True} if sys.version_info >= (3, 10) else {}
"""For `dataclass`, of what there is one per point: slots save memory and time."""

_T = TypeVar("_T")
_Tensor = TypeVar("_Tensor")
_Blob = TypeVar("_Blob")


class DataClass(enum.IntEnum):
    """The kind of a time series' points; the numbers are those of TensorBoard's `DataClass`.

    Source: `tensorboard/compat/proto/summary.proto`.
    """

    SCALAR = 1
    TENSOR = 2
    BLOB_SEQUENCE = 3

    @property
    def label(self) -> str:
        """Return its name in JSON: `scalar`, `tensor` or `blob_sequence`."""
        return self.name.lower()


DataClassName = Literal["scalars", "tensors", "blob_sequences"]
"""The name of a data class in URLs, and of its field in the messages `Series` and `Part`."""

DATA_CLASSES: Final[dict[DataClassName, DataClass]] = {
    "scalars": DataClass.SCALAR,
    "tensors": DataClass.TENSOR,
    "blob_sequences": DataClass.BLOB_SEQUENCE,
}


@dataclass(frozen=True)
class ScalarPoints:
    """Points of a scalar series: three columns of one length.

    `values` are float64; float32 in the uploader, if the file has float32 only.
    """

    data_class: ClassVar[DataClass] = DataClass.SCALAR

    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def value_count(self) -> int:
        """Return how many scalars these are."""
        return len(self.steps)

    def select(self, rows: Rows) -> ScalarPoints:
        """Return some of the points, without what a subclass adds to the columns."""
        return ScalarPoints(self.steps[rows], self.wall_times[rows], self.values[rows])


@dataclass(frozen=True)
class TensorPoints(Generic[_Tensor]):
    """Points of a tensor series; `tensors` is as long as the two arrays."""

    data_class: ClassVar[DataClass] = DataClass.TENSOR

    steps: Steps
    wall_times: WallTimes
    tensors: Sequence[_Tensor]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def value_count(self) -> int:
        """Return how many tensors these are."""
        return len(self.steps)

    def select(self, rows: Rows) -> TensorPoints[_Tensor]:
        """Return some of the points."""
        return TensorPoints(self.steps[rows], self.wall_times[rows], _select(self.tensors, rows))


@dataclass(frozen=True)
class BlobSequencePoints(Generic[_Blob]):
    """Points of a blob sequence series: four columns of one length.

    `logged_content_types` has the content type that was logged with a step's only blob, or "". The
    uploader chooses it: never use it as a response header.
    """

    data_class: ClassVar[DataClass] = DataClass.BLOB_SEQUENCE

    steps: Steps
    wall_times: WallTimes
    sequences: Sequence[Sequence[_Blob]]
    logged_content_types: Sequence[str]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def value_count(self) -> int:
        """Return how many blobs these are; a step may have any number."""
        return sum(map(len, self.sequences))

    def select(self, rows: Rows) -> BlobSequencePoints[_Blob]:
        """Return some of the points."""
        return BlobSequencePoints(
            self.steps[rows],
            self.wall_times[rows],
            _select(self.sequences, rows),
            _select(self.logged_content_types, rows),
        )


Points = Union[ScalarPoints, TensorPoints[Any], BlobSequencePoints[Any]]


_P = TypeVar("_P", bound=Points)


def concatenate(chunks: Sequence[_P]) -> _P:
    """Return all points in the order of `chunks`, at least one; all have the same type."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    names = [column.name for column in fields(first)]
    columns = {name: _join([getattr(chunk, name) for chunk in chunks]) for name in names}
    return replace(first, **columns)


def set_columns(message: Any, points: Points) -> None:
    """Set `steps` and `wall_times` of a message of points: little-endian, 8 bytes each."""
    message.steps = points.steps.astype("<i8", copy=False).tobytes()
    message.wall_times = points.wall_times.astype("<f8", copy=False).tobytes()


def get_columns(message: Any) -> tuple[Steps, WallTimes]:
    """Return steps and wall times of a message of points; their lengths are not compared.

    Raises ValueError for bytes that are not a multiple of 8.
    """
    return np.frombuffer(message.steps, "<i8"), np.frombuffer(message.wall_times, "<f8")


def column_bytes(column: npt.NDArray[Any], dtype: str) -> bytes:
    """Return a column's elements as this type."""
    return column.astype(dtype, copy=False).tobytes()


def _select(column: Sequence[_T], rows: Rows) -> Sequence[_T]:
    if isinstance(rows, slice):
        return column[rows]
    return [column[index] for index in np.arange(len(column))[rows].tolist()]


def _join(columns: list[Any]) -> Any:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return list(chain.from_iterable(columns))
