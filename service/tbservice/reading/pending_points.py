"""Reading of the points that the owner of a change cursor does not have yet.

Every function needs a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.reading.change_cursor import PendingChanges
from tbservice.reading.sampling.uniform import read_levels
from tbservice.reading.tables.series_progress import SeriesProgress
from tbservice.reading.value_readers import VALUE_READERS, ValueReader
from tbservice.samples import Sample, ScalarSample
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import value_scan
from tbservice.series.tables.scalar_blocks import SEALED
from tbservice.series.tables.scalar_format import concatenate
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import StepRange
from tbwire.points import DataClass, ScalarPoints

CHANGES_BYTES_MAX: Final = 8 * limits.MIB
"""Bytes of tensors in one response of the change feed, except that it has at least one point."""


class PendingSeries(NamedTuple):
    """A series to read from step `first_step`: at most `points` points.

    `held_points_max` bounds the points that must be in memory at once to read them.
    """

    series_id: int
    first_step: int
    is_replacing: bool
    points: int
    held_points_max: int


def choose_series(
    progress: SeriesProgress, pending: PendingChanges, points_max: int
) -> list[PendingSeries]:
    """Return the first pending series that certainly fit into a change set; at least one.

    The bounds are `points_max` points returned and `SCAN_CHUNK_POINTS` points in memory.
    """
    indices, first_steps = pending.indices, pending.first_steps.astype(np.float64)
    counts = progress.counts[indices].astype(np.float64)
    # A series has at most one point per step, so that the distance of steps bounds their number.
    points = np.minimum(counts, progress.last_steps[indices] - first_steps + 1)
    held_points = np.minimum(counts, points + progress.tail_points[indices])

    fitting = min(
        np.searchsorted(np.cumsum(points), points_max, "right"),
        np.searchsorted(np.cumsum(held_points), limits.SCAN_CHUNK_POINTS, "right"),
    )
    selected = slice(max(1, int(fitting)))
    columns = (
        progress.series_ids[indices],
        pending.first_steps,
        pending.is_replacing,
        points.astype(int),
        held_points.astype(int),
    )
    return [
        PendingSeries(*row)
        for row in zip(*(column[selected].tolist() for column in columns), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Points by series id.

    The first `complete_count` series were read to their end; the next one up to and including step
    `cut_step`, or not at all when that is None.
    """

    samples: Mapping[int, Sample]
    complete_count: int
    cut_step: int | None = None


def read_points(
    db: Connection,
    grant: ReadGrant,
    data_class: DataClass | None,
    series_list: Sequence[PendingSeries],
    points_max: int,
) -> ReadResult:
    """Return points of these series, in their order: at most `points_max`, but at least one.

    Tensors and blob sequences are also limited to about `CHANGES_BYTES_MAX` bytes.
    """
    if not series_list:
        return ReadResult({}, 0)

    if data_class is not None and data_class is not DataClass.SCALAR:
        return _read_values(db, grant, series_list, points_max, VALUE_READERS[data_class])

    first = series_list[0]
    if first.points > points_max or first.held_points_max > limits.SCAN_CHUNK_POINTS:
        return _read_long_series(db, grant, first, points_max)
    return _read_scalars(db, grant, series_list)


def _read_long_series(
    db: Connection, grant: ReadGrant, series: PendingSeries, points_max: int
) -> ReadResult:
    """Return the first `points_max` points of a scalar series of any length."""
    chunks: list[ScalarPoints] = []
    for _, chunk in read_scalar_chunks(
        db,
        grant.experiment_id,
        [series.series_id],
        StepRange(series.first_step),
        limits.SCAN_CHUNK_POINTS,
    ):
        chunks.append(chunk)
        if sum(map(len, chunks)) > points_max:
            break

    points = concatenate(chunks)
    kept = points.select(slice(points_max))
    sample = ScalarSample(kept.steps, kept.wall_times, kept.values, len(kept))
    if len(kept) == len(points):
        return ReadResult({series.series_id: sample}, 1)
    return ReadResult({series.series_id: sample}, 0, int(kept.steps[-1]))


def _read_scalars(
    db: Connection, grant: ReadGrant, series_list: Sequence[PendingSeries]
) -> ReadResult:
    """Return all pending points of these scalar series; all of them are in memory at once."""
    ranges = {series.series_id: StepRange(series.first_step) for series in series_list}
    points_by_series = read_levels(db, grant.experiment_id, dict.fromkeys(ranges, SEALED), ranges)
    return ReadResult(
        {
            id_: ScalarSample(points.steps, points.wall_times, points.values, len(points))
            for id_, points in points_by_series.items()
        },
        len(series_list),
    )


def _read_values(
    db: Connection,
    grant: ReadGrant,
    series_list: Sequence[PendingSeries],
    points_max: int,
    reader: ValueReader[Any, Any],
) -> ReadResult:
    """Return rows of the series up to `points_max` points or `CHANGES_BYTES_MAX` bytes."""
    rows: list[Any] = []
    size = 0
    complete_count = len(series_list)
    cut_step: int | None = None
    for row in _stream_rows(db, grant, series_list, reader):
        size += row.size
        if rows and (len(rows) == points_max or size > CHANGES_BYTES_MAX):
            last = rows[-1]
            ids = [series.series_id for series in series_list]
            complete_count, cut_step = ids.index(last.series_id), last.step
            break
        rows.append(row)

    samples = {}
    for id_, group in groupby(rows, lambda row: row.series_id):
        rows_of_series = list(group)
        samples[id_] = reader.make_sample(db, grant, rows_of_series, ALL_BLOBS, len(rows_of_series))
    return ReadResult(samples, complete_count, cut_step)


def _stream_rows(
    db: Connection,
    grant: ReadGrant,
    series_list: Sequence[PendingSeries],
    reader: ValueReader[Any, Any],
) -> Iterator[Any]:
    """Yield the rows of each series from its first pending step.

    One query per group of neighbours with the same first step: tags of a run usually share it.
    """
    for first_step, group in groupby(series_list, lambda series: series.first_step):
        ids = [series.series_id for series in group]
        yield from value_scan.stream(
            db, reader.row_type, grant.experiment_id, ids, StepRange(first_step)
        )
