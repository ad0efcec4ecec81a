"""Collect the points of a chunk in any order, and return columns by series in file order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Union

import numpy as np
import numpy.typing as npt

from tbupload.events.decode.record_walk import Indices
from tbupload.events.decode.summaries import Point
from tbupload.events.points import Columns, Tensor
from tbwire.points import BlobSequencePoints, ScalarPoints, Steps, TensorPoints, WallTimes

_SLOT_BITS: Final = 32
"""A file position is `record << 32 | slot`: a chunk has fewer than 2^31 records, and of slots."""

_INT16_MAX: Final = np.iinfo(np.int16).max

FilePositions = npt.NDArray[np.int64]
SeriesIndices = Union[npt.NDArray[np.int16], npt.NDArray[np.intp]]


def file_positions(records: Indices, slot: int) -> FilePositions:
    """Return the file positions of the scalars in this slot of the records: numbers that sort."""
    positions = np.left_shift(records, _SLOT_BITS, dtype=np.int64)
    if slot:
        positions |= slot
    return positions


def narrow_indices(indices: Indices, count: int) -> SeriesIndices:
    """Return indices below `count`, or -1, as int16 if they fit: numpy sorts these by radix."""
    return indices.astype(np.int16) if count <= _INT16_MAX else indices


@dataclass(frozen=True)
class _Scalars:
    """Scalars and their file positions: columns of one length."""

    positions: FilePositions
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]

    def take(self, order: Indices | slice) -> _Scalars:
        return _Scalars(
            self.positions[order], self.steps[order], self.wall_times[order], self.values[order]
        )


@dataclass(frozen=True)
class _MixedScalars:
    """Scalars of many series, and the index of each one's series."""

    series: SeriesIndices
    scalars: _Scalars


@dataclass
class _Points:
    """Points of one series that were decoded one by one, in file order.

    `positions` is used for scalars only: they are merged with those decoded in bulk.
    """

    positions: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    wall_times: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


class PointCollector:
    """Collects points by an index of their series that the caller chooses."""

    def __init__(self) -> None:
        self._mixed: list[_MixedScalars] = []
        self._series: defaultdict[int, list[_Scalars]] = defaultdict(list)
        self._points: defaultdict[int, _Points] = defaultdict(_Points)

    def add_scalars(
        self,
        series: SeriesIndices,
        positions: FilePositions,
        steps: Steps,
        wall_times: WallTimes,
        values: npt.NDArray[Any],
    ) -> None:
        """Add scalars of many series: columns of one length, in file order.

        Values that are not float32 are converted to float64.
        """
        if len(series):
            self._mixed.append(
                _MixedScalars(
                    series, _Scalars(positions, steps, wall_times, _as_float32_or_float64(values))
                )
            )

    def add_series(
        self,
        index: int,
        positions: FilePositions,
        steps: Steps,
        wall_times: WallTimes,
        values: npt.NDArray[Any],
    ) -> None:
        """Add scalars of one series, in file order; cheaper than `add_scalars`."""
        if len(positions):
            self._series[index].append(
                _Scalars(positions, steps, wall_times, _as_float32_or_float64(values))
            )

    def add_point(
        self, index: int, record: int, slot: int, event: tuple[int, float], point: Point
    ) -> None:
        """Add one point, which follows those added before for its series in the file.

        `event` is the event's step and wall time.
        """
        points = self._points[index]
        points.positions.append((record << _SLOT_BITS) | slot)
        points.steps.append(event[0])
        points.wall_times.append(event[1])
        points.values.append(point)

    def columns(self) -> dict[int, Columns]:
        """Return all points by series, in file order."""
        columns: dict[int, Columns] = {}
        for index, points in self._points.items():
            if isinstance(points.values[0], np.floating):
                self._add_scalar_points(index, points)
            else:
                columns[index] = _object_columns(points)
        columns.update(self._scalar_columns())
        return columns

    def _add_scalar_points(self, index: int, points: _Points) -> None:
        for dtype in (np.float32, np.float64):
            rows = [row for row, value in enumerate(points.values) if isinstance(value, dtype)]
            self.add_series(
                index,
                np.array([points.positions[row] for row in rows], np.int64),
                np.array([points.steps[row] for row in rows], np.int64),
                np.array([points.wall_times[row] for row in rows], np.float64),
                np.array([points.values[row] for row in rows], dtype),
            )

    def _scalar_columns(self) -> dict[int, Columns]:
        """Return the scalars of each series; float64 if any of its values in this chunk is."""
        chunks = defaultdict(list, {index: list(added) for index, added in self._series.items()})
        for dtype in (np.float32, np.float64):
            mixtures = [mixture for mixture in self._mixed if mixture.scalars.values.dtype == dtype]
            for index, scalars in _group_by_series(mixtures):
                chunks[index].append(scalars)
        return {index: _join_scalars(added) for index, added in chunks.items()}


def _group_by_series(mixtures: list[_MixedScalars]) -> Iterator[tuple[int, _Scalars]]:
    """Yield each series in these mixtures with its scalars in file order."""
    if not mixtures:
        return
    mixtures.sort(key=lambda mixture: int(mixture.scalars.positions[0]))
    series = np.concatenate([mixture.series for mixture in mixtures])
    scalars = _concatenate([mixture.scalars for mixture in mixtures])
    # Stable: points of one series keep their order, which decides between equal wall times.
    if (series != series[0]).any():
        order = np.argsort(series, kind="stable")
        series, scalars = series[order], scalars.take(order)

    ends_series = series[1:] != series[:-1]
    # Usually they are in file order already, as records become longer when steps get more digits.
    if not (ends_series | (scalars.positions[1:] > scalars.positions[:-1])).all():
        scalars = scalars.take(np.lexsort((scalars.positions, series)))
    bounds = [0, *(ends_series.nonzero()[0] + 1).tolist(), len(series)]
    for index, bound in zip(series[bounds[:-1]].tolist(), zip(bounds, bounds[1:])):
        yield index, scalars.take(slice(*bound))


def _join_scalars(chunks: list[_Scalars]) -> ScalarPoints:
    """Return the scalars of one series in file order; float64 if any chunk is."""
    chunks.sort(key=lambda chunk: int(chunk.positions[0]))
    scalars = _concatenate(chunks)
    if len(chunks) > 1 and not (scalars.positions[1:] > scalars.positions[:-1]).all():
        scalars = scalars.take(np.argsort(scalars.positions, kind="stable"))
    return ScalarPoints(scalars.steps, scalars.wall_times, scalars.values)


def _concatenate(chunks: list[_Scalars]) -> _Scalars:
    """Return all chunks joined; numpy makes the values float64 if any chunk is."""
    if len(chunks) == 1:
        return chunks[0]
    return _Scalars(
        np.concatenate([chunk.positions for chunk in chunks]),
        np.concatenate([chunk.steps for chunk in chunks]),
        np.concatenate([chunk.wall_times for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
    )


def _as_float32_or_float64(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _object_columns(points: _Points) -> Columns:
    steps, wall_times = np.array(points.steps, np.int64), np.array(points.wall_times, np.float64)
    if isinstance(points.values[0], Tensor):
        return TensorPoints(steps, wall_times, points.values)
    sequences = [value.blobs for value in points.values]
    return BlobSequencePoints(
        steps, wall_times, sequences, [value.logged_content_type for value in points.values]
    )
