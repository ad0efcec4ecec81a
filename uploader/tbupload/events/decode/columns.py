"""Gathers the points of a chunk, in whatever order they were decoded, into columns by series in file order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events.decode.record_walk import Indices
from tbupload.events.decode.summaries import Point
from tbupload.events.points import (
    BlobSequenceColumns,
    Columns,
    ScalarColumns,
    Steps,
    Tensor,
    TensorColumns,
    WallTimes,
)

_SLOT_BITS: Final = 32
"""A point's place in the file is its record, then its slot in the event: a chunk has fewer than 2^31 of either."""

_INT16_MAX: Final = np.iinfo(np.int16).max

FilePositions = npt.NDArray[np.int64]
SeriesIndices = npt.NDArray[np.int16] | npt.NDArray[np.intp]


def file_positions(records: Indices, slot: int) -> FilePositions:
    """Where scalars of these records stand in the file, as numbers that sort."""
    places = np.left_shift(records, _SLOT_BITS, dtype=np.int64)
    if slot:
        places |= slot
    return places


def narrow_indices(indices: Indices, count: int) -> SeriesIndices:
    """The indices of series, or -1, in as few bytes as so many series allow: short ones are sorted by radix."""
    return indices.astype(np.int16) if count <= _INT16_MAX else indices


@dataclass(frozen=True, slots=True)
class _Scalars:
    """Columns of one length: the place in the file, and the point."""

    places: FilePositions
    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[Any]

    def take(self, order: Indices | slice) -> _Scalars:
        return _Scalars(
            self.places[order], self.steps[order], self.wall_times[order], self.values[order]
        )


@dataclass(frozen=True, slots=True)
class _MixedScalars:
    """Scalars of many series, and for each one the index of its series."""

    series: SeriesIndices
    scalars: _Scalars


@dataclass(slots=True)
class _Points:
    """Points decoded one by one, in file order; `places` is used by scalars only."""

    places: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    wall_times: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


class PointCollector:
    """Takes points by the index of their series, which is the caller's choice, and gives columns."""

    def __init__(self) -> None:
        self._mixed: list[_MixedScalars] = []
        self._series: defaultdict[int, list[_Scalars]] = defaultdict(list)
        self._points: defaultdict[int, _Points] = defaultdict(_Points)

    def add_scalars(
        self,
        series: SeriesIndices,
        places: FilePositions,
        steps: Steps,
        wall_times: WallTimes,
        values: npt.NDArray[Any],
    ) -> None:
        """Takes columns of scalars, of many series at once; any real type but float32 becomes float64."""
        if len(series):
            self._mixed.append(
                _MixedScalars(
                    series, _Scalars(places, steps, wall_times, _as_float32_or_float64(values))
                )
            )

    def add_series(
        self,
        index: int,
        places: FilePositions,
        steps: Steps,
        wall_times: WallTimes,
        values: npt.NDArray[Any],
    ) -> None:
        """Takes columns of scalars that are all of one series, in file order."""
        if len(places):
            self._series[index].append(
                _Scalars(places, steps, wall_times, _as_float32_or_float64(values))
            )

    def add_point(
        self, index: int, record: int, slot: int, event: tuple[int, float], point: Point
    ) -> None:
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
            self.add_series(
                index,
                np.array([points.places[row] for row in chosen], np.int64),
                np.array([points.steps[row] for row in chosen], np.int64),
                np.array([points.wall_times[row] for row in chosen], np.float64),
                np.array([points.values[row] for row in chosen], dtype),
            )

    def _scalar_columns(self) -> dict[int, Columns]:
        """The scalars of each series; float64 as soon as a value of the series in this chunk is."""
        pieces = defaultdict(list, {index: list(those) for index, those in self._series.items()})
        for dtype in (np.float32, np.float64):
            mixtures = [mixture for mixture in self._mixed if mixture.scalars.values.dtype == dtype]
            for index, piece in _group_by_series(mixtures):
                pieces[index].append(piece)
        return {index: _join_scalars(those) for index, those in pieces.items()}


def _group_by_series(mixtures: list[_MixedScalars]) -> Iterator[tuple[int, _Scalars]]:
    """The scalars of each series in these mixtures, in file order."""
    if not mixtures:
        return
    mixtures.sort(key=lambda mixture: int(mixture.scalars.places[0]))
    series = np.concatenate([mixture.series for mixture in mixtures])
    scalars = _concatenate([mixture.scalars for mixture in mixtures])
    if (series != series[0]).any():
        order = np.argsort(series, kind="stable")
        series, scalars = series[order], scalars.take(order)
    ends_series = series[1:] != series[:-1]
    # Mostly they are in file order already, as records grow longer with their step.
    if not (ends_series | (scalars.places[1:] > scalars.places[:-1])).all():
        scalars = scalars.take(np.lexsort((scalars.places, series)))
    bounds = [0, *(ends_series.nonzero()[0] + 1).tolist(), len(series)]
    for index, part in zip(series[bounds[:-1]].tolist(), pairwise(bounds), strict=True):
        yield index, scalars.take(slice(*part))


def _join_scalars(pieces: list[_Scalars]) -> ScalarColumns:
    """The scalars of one series, in file order; float64 as soon as a piece is."""
    pieces.sort(key=lambda piece: int(piece.places[0]))
    scalars = _concatenate(pieces)
    if len(pieces) > 1 and not (scalars.places[1:] > scalars.places[:-1]).all():
        scalars = scalars.take(np.argsort(scalars.places, kind="stable"))
    return ScalarColumns(scalars.steps, scalars.wall_times, scalars.values)


def _concatenate(pieces: list[_Scalars]) -> _Scalars:
    """All pieces, one after the other; float64 as soon as one is."""
    if len(pieces) == 1:
        return pieces[0]
    return _Scalars(
        np.concatenate([piece.places for piece in pieces]),
        np.concatenate([piece.steps for piece in pieces]),
        np.concatenate([piece.wall_times for piece in pieces]),
        np.concatenate([piece.values for piece in pieces]),
    )


def _as_float32_or_float64(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values if values.dtype == np.float32 else values.astype(np.float64)


def _object_columns(points: _Points) -> Columns:
    steps, wall_times = np.array(points.steps, np.int64), np.array(points.wall_times, np.float64)
    if isinstance(points.values[0], Tensor):
        return TensorColumns(steps, wall_times, points.values)
    sequences = [value.blobs for value in points.values]
    return BlobSequenceColumns(
        steps, wall_times, sequences, [value.logged_content_type for value in points.values]
    )
