"""Types of the points that are read from a server, and concatenation of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

import numpy as np

from tbupload.events.points import ScalarColumns, Steps, TensorColumns, WallTimes

DataClass = Literal["scalars", "tensors", "blob_sequences"]

DATA_CLASSES: Final[tuple[DataClass, ...]] = ("scalars", "tensors", "blob_sequences")


@dataclass(frozen=True, slots=True)
class RemoteSeries:
    """A series on the server.

    `data_class` is the number in `tensorboard/compat/proto/summary.proto`, `metadata` a serialized
    `tbwire.tensorboard_pb2.SummaryMetadata`, and `total` the number of points of the series when it
    was listed.
    """

    run: str
    tag: str
    plugin: str
    data_class: int
    metadata: bytes
    total: int


@dataclass(frozen=True, slots=True)
class RemoteBlob:
    """A blob on the server: its key, SHA-256 (32 bytes), size in bytes, and content type."""

    key: str
    sha256: bytes
    size: int
    content_type: str


@dataclass(slots=True)
class RemoteSequenceColumns:
    """Points of a blob sequence series: four columns of equal length.

    `logged_content_types` are those that were logged with audio, or empty.
    """

    steps: Steps
    wall_times: WallTimes
    sequences: list[list[RemoteBlob]]
    logged_content_types: list[str]


@dataclass(frozen=True, slots=True)
class LostPoint:
    """A point that is left out, because the server lost the object with its bytes.

    `is_unreadable`: the object store could not read the object, which may succeed later.
    """

    run: str
    tag: str
    step: int
    reason: str
    is_unreadable: bool = False


_C = TypeVar("_C")

Columns = ScalarColumns | TensorColumns | RemoteSequenceColumns


@dataclass(frozen=True, slots=True)
class SeriesPart:
    """Points of one series in step order, one per step, as columns of equal length.

    Steps are int64, wall times and scalar values float64. `sampling` is the rule by which the
    points were selected; "all" omits none. `is_last` marks the last part of the series.
    """

    series: RemoteSeries
    columns: Columns
    is_last: bool
    sampling: str


def whole_series(parts: Iterable[SeriesPart]) -> Iterator[SeriesPart]:
    """Yield each series as one part: memory is bounded by the longest series."""
    pending: list[SeriesPart] = []
    for part in parts:
        pending.append(part)
        if part.is_last:
            columns = join([part.columns for part in pending])
            yield SeriesPart(part.series, columns, True, part.sampling)
            pending = []


def join(columns: list[Columns]) -> Columns:
    """Concatenate columns of the same type; at least one."""
    first = columns[0]
    if len(columns) == 1:
        return first

    steps = np.concatenate([chunk.steps for chunk in columns])
    wall_times = np.concatenate([chunk.wall_times for chunk in columns])

    if isinstance(first, ScalarColumns):
        return ScalarColumns(
            steps,
            wall_times,
            np.concatenate([chunk.values for chunk in _columns_of_type(ScalarColumns, columns)]),
        )

    if isinstance(first, TensorColumns):
        chunks = _columns_of_type(TensorColumns, columns)
        return TensorColumns(
            steps, wall_times, [tensor for chunk in chunks for tensor in chunk.tensors]
        )

    sequence_chunks = list(_columns_of_type(RemoteSequenceColumns, columns))
    return RemoteSequenceColumns(
        steps,
        wall_times,
        [sequence for chunk in sequence_chunks for sequence in chunk.sequences],
        [text for chunk in sequence_chunks for text in chunk.logged_content_types],
    )


def _columns_of_type(kind: type[_C], columns: Iterable[object]) -> Iterator[_C]:
    return (chunk for chunk in columns if isinstance(chunk, kind))
