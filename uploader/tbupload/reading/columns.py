"""Gathers the points of a chunk, in whatever order they were decoded, into columns by series in file order."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.reading.points import (
    BlobSequenceColumns,
    Columns,
    ScalarColumns,
    Steps,
    Tensor,
    TensorColumns,
    WallTimes,
)
from tbupload.reading.record_walk import Indices
from tbupload.reading.summaries import Point

_SLOT_BITS: Final = 32
"""A point's place in the file is its record, then its slot in the event: a chunk has fewer than 2^31 of either."""

_SHORT: Final = np.iinfo(np.int16).max

Places = npt.NDArray[np.int64]
SeriesIndices = npt.NDArray[np.int16] | npt.NDArray[np.intp]


def place(records: Indices, slot: int) -> Places:
    """Where scalars of these records stand in the file, as numbers that sort."""
    places = np.left_shift(records, _SLOT_BITS, dtype=np.int64)
    if slot:
        places |= slot
    return places


def shortened(indices: Indices, count: int) -> SeriesIndices:
    """The indices of series, or -1, in as few bytes as so many series allow: short ones are sorted by radix."""
    return indices.astype(np.int16) if count <= _SHORT else indices


@dataclass(frozen=True, slots=True)
class _Scalars:
    """Columns of one length: the series by index, the place in the file, and the point."""

    series: SeriesIndices
    places: Places
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]

    def take(self, order: Indices | slice) -> _Scalars:
        return _Scalars(
            self.series[order], self.places[order], self.steps[order], self.wall_times[order], self.values[order]
        )


@dataclass(slots=True)
class _Points:
    """Points decoded one by one, in file order; `places` is used by scalars only."""

    places: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    wall_times: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


class PointGatherer:
    """Takes points by the index of their series, which is the caller's choice, and gives columns."""

    def __init__(self) -> None:
        self._pieces: list[_Scalars] = []
        self._points: defaultdict[int, _Points] = defaultdict(_Points)

    def add_scalars(
        self, series: SeriesIndices, places: Places, steps: Steps, wall_times: WallTimes, values: npt.NDArray[Any]
    ) -> None:
        """Takes columns of scalars, of many series at once; any real type but float32 becomes float64."""
        if not len(series):
            return
        if values.dtype != np.float32:
            values = values.astype(np.float64)
        self._pieces.append(_Scalars(series, places, steps, wall_times, values))

    def add_point(self, index: int, record: int, slot: int, event: tuple[int, float], point: Point) -> None:
        """Takes one point, which must come after those of its series given before; `event` is step and wall time."""
        points = self._points[index]
        points.places.append((record << _SLOT_BITS) | slot)
        points.steps.append(event[0])
        points.wall_times.append(event[1])
        points.values.append(point)

    def columns(self) -> dict[int, Columns]:
        """All points given, by series, in file order."""
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
            chosen = [row for row, value in enumerate(points.values) if isinstance(value, dtype)]
            if chosen:
                self._pieces.append(
                    _Scalars(
                        np.full(len(chosen), index),
                        np.array([points.places[row] for row in chosen], np.int64),
                        np.array([points.steps[row] for row in chosen], np.int64),
                        np.array([points.wall_times[row] for row in chosen], np.float64),
                        np.array([points.values[row] for row in chosen], dtype),
                    )
                )

    def _scalar_columns(self) -> dict[int, Columns]:
        """The scalars of each series; float64 as soon as a value of the series in this chunk is."""
        types = (np.float32, np.float64)
        by_type = ([piece for piece in self._pieces if piece.values.dtype == dtype] for dtype in types)
        found = [_ordered(pieces) for pieces in by_type if pieces]
        if len(found) > 1:
            mixed = found[0].parts.keys() & found[1].parts.keys()
            found += [_ordered([_widened(each.part(index)) for each in found]) for index in mixed]
        columns: dict[int, Columns] = {}
        for each in found:  # those of both types come last
            columns |= each.columns()
        return columns


@dataclass(frozen=True, slots=True)
class _Ordered:
    """Scalars of which those of a series stand together, in file order; `parts` says where, by series."""

    scalars: _Scalars
    parts: dict[int, slice]

    def part(self, index: int) -> _Scalars:
        return self.scalars.take(self.parts[index])

    def columns(self) -> dict[int, Columns]:
        steps, wall_times, values = self.scalars.steps, self.scalars.wall_times, self.scalars.values
        return {index: ScalarColumns(steps[part], wall_times[part], values[part]) for index, part in self.parts.items()}


def _concatenate(pieces: list[_Scalars]) -> _Scalars:
    """All pieces, one after the other."""
    if len(pieces) == 1:
        return pieces[0]
    return _Scalars(
        np.concatenate([piece.series for piece in pieces]),
        np.concatenate([piece.places for piece in pieces]),
        np.concatenate([piece.steps for piece in pieces]),
        np.concatenate([piece.wall_times for piece in pieces]),
        np.concatenate([piece.values for piece in pieces]),
    )


def _widened(scalars: _Scalars) -> _Scalars:
    return replace(scalars, values=scalars.values.astype(np.float64))


def _ordered(pieces: list[_Scalars]) -> _Ordered:
    """All pieces, by series."""
    pieces.sort(key=lambda piece: int(piece.places[0]))
    scalars = _by_series(_concatenate(pieces))
    ends_series = scalars.series[1:] != scalars.series[:-1]
    # Mostly they are in file order already, as records grow longer with their step.
    if not (ends_series | (scalars.places[1:] > scalars.places[:-1])).all():
        scalars = scalars.take(np.lexsort((scalars.places, scalars.series)))
    bounds = [0, *(ends_series.nonzero()[0] + 1).tolist(), len(scalars.series)]
    series = scalars.series[bounds[:-1]].tolist()
    return _Ordered(scalars, {index: slice(*part) for index, part in zip(series, pairwise(bounds), strict=True)})


def _by_series(scalars: _Scalars) -> _Scalars:
    """The same points, those of a series together, otherwise in the order given."""
    keys = scalars.series
    if bool((keys == keys[0]).all()):
        return scalars
    return scalars.take(np.argsort(keys, kind="stable"))


def _object_columns(points: _Points) -> Columns:
    steps, wall_times = np.array(points.steps, np.int64), np.array(points.wall_times, np.float64)
    if isinstance(points.values[0], Tensor):
        return TensorColumns(steps, wall_times, points.values)
    return BlobSequenceColumns(steps, wall_times, points.values)
