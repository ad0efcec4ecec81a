"""Streams of all points of the selected series, in chunks, over any length of time.

A slow client must not occupy a connection, so that each group of chunks that fits into memory is
read in its own snapshot, which is closed before the first of them is yielded. Consequences:

- Each series is in the state of its snapshot; one too long for a chunk, each chunk in the state of
  that chunk's. No point is returned twice, and none is missing that existed in that snapshot.
- Series created after the start are not returned; those deleted meanwhile are skipped.
- When the experiment is deleted, the stream ends with NotFound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth.suspensions import check_sharing
from tbservice.db.database import Database
from tbservice.experiments.lifecycle import get_experiment
from tbservice.grouping import group_by_weight
from tbservice.reading.attempts import find_before, find_series_before
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.reading.point_samples import find_blobs
from tbservice.reading.tables import attempt_scan
from tbservice.reading.value_readers import VALUE_READERS
from tbservice.samples import Sample, ScalarSample
from tbservice.series.scan import AttemptScan, read_scalar_chunks
from tbservice.series.tables import time_series, value_scan
from tbservice.series.tables.scalar_format import concatenate
from tbservice.series.tables.value_scan import ValueRow
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import ALL_STEPS, Selection, StepRange
from tbservice.types.series import Blob, Series
from tbwire.points import DataClass, ScalarPoints

_SERIES_PER_READ: Final = 4_000
"""Maximum number of series in a query."""


@dataclass(frozen=True, slots=True)
class SeriesChunk:
    """Points of a series in step order, one per step; a series has one chunk or several.

    The sample's `total` is that of the complete series; if there are several chunks, the count from
    the listing. `blobs` contains the blobs of a blob sequence series by SHA-256, and maybe others.
    """

    series: Series
    sample: Sample
    is_first: bool = True
    is_last: bool = True
    blobs: Mapping[bytes, Blob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _SeriesRead:
    """Points of a series from one read; `is_complete` unless the read stopped before its end."""

    series: Series
    sample: Sample
    is_complete: bool


def stream_all(
    database: Database,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    steps: StepRange = ALL_STEPS,
    indices: slice = ALL_BLOBS,
    attempt: int | None = None,
) -> Iterator[SeriesChunk]:
    """Yield all points of the selected series in a range of steps.

    Series are ordered by creation of their run, then by their own creation, and listed in the call
    itself. A series without points in the range yields one empty chunk. Tensors that are objects
    remain to be loaded (`loaded_chunks`).

    Args:
        database: Database that opens the snapshots.
        grant: Experiment to read.
        selection: Series to read; its data class is ignored.
        data_class: Data class to read.
        steps: Range of steps, ends included.
        indices: Indices of the blobs to return of each blob sequence.
        attempt: Runs with more attempts are read as they were before the next one began.

    Raises NotFound if no run has so many attempts, or the experiment is deleted: a stream may have
    waited for its turn since the grant was made.
    """
    with database.snapshot(grant) as db:
        get_experiment(db, grant)
        series_list = time_series.list_series(
            db, grant.experiment_id, replace(selection, data_class=data_class)
        )
        before = find_series_before(series_list, find_before(db, grant, attempt))
    series_list.sort(key=lambda series: (series.run_id, series.series_id))
    return _stream_chunks(database, grant, series_list, _Points(steps, indices, before))


@dataclass(frozen=True, slots=True)
class _Points:
    """The points to read: a range of steps, blobs by index, and those before a time, by series."""

    steps: StepRange
    indices: slice
    before: Mapping[int, float]


def _stream_chunks(
    database: Database, grant: ReadGrant, series_list: Sequence[Series], points: _Points
) -> Iterator[SeriesChunk]:
    steps = points.steps
    has_begun = False  # the grant was made just before
    for group in group_by_weight(
        series_list, lambda series: series.count, limits.SCAN_CHUNK_POINTS, _SERIES_PER_READ
    ):
        remaining: Sequence[Series] = group
        remaining_steps = steps
        while remaining:
            # The rest of a series that was begun is read alone, as its range of steps is shorter.
            is_begun = remaining_steps != steps
            to_read = remaining[:1] if is_begun else remaining
            with database.snapshot(grant) as db:
                # Raises NotFound for a deleted experiment: else its series would only look deleted.
                get_experiment(db, grant)
                if has_begun:
                    check_sharing(db, grant)
                wanted = replace(points, steps=remaining_steps)
                read = list(_read_group(db, grant, to_read, wanted))
                known = find_blobs(db, grant, (series_read.sample for series_read in read))
            has_begun = True

            for series_read in read:
                if is_begun or not _is_deleted(series_read, points):
                    sample = series_read.sample
                    if series_read.is_complete and not is_begun:
                        sample = replace(sample, total=len(sample.steps))
                    yield SeriesChunk(
                        series_read.series,
                        sample,
                        not is_begun,
                        series_read.is_complete,
                        known,
                    )
            remaining, remaining_steps = _list_remaining(remaining, read, steps)


def _list_remaining(
    series_list: Sequence[Series], read: Sequence[_SeriesRead], steps: StepRange
) -> tuple[Sequence[Series], StepRange]:
    """Return the series to read next, and the range of steps of the first of them."""
    last = read[-1]
    if last.is_complete:
        return series_list[len(read) :], steps
    return series_list[len(read) - 1 :], StepRange(int(last.sample.steps[-1]) + 1, steps.last)


def _is_deleted(series_read: _SeriesRead, points: _Points) -> bool:
    """Return whether the series was deleted since the listing: points are never deleted alone.

    In an earlier attempt, a series may have no points.
    """
    return (
        series_read.is_complete
        and not len(series_read.sample.steps)
        and points.steps.covers(series_read.series)
        and series_read.series.series_id not in points.before
    )


def _read_group(
    db: Connection, grant: ReadGrant, group: Sequence[Series], points: _Points
) -> Iterator[_SeriesRead]:
    """Yield series until `SCAN_CHUNK_POINTS` or `SCAN_CHUNK_BYTES` are reached; at least one."""
    ids = [series.series_id for series in group]
    data_class = group[0].data_class
    before = {id_: points.before[id_] for id_ in ids if id_ in points.before}
    if data_class is DataClass.SCALAR:
        chunks = read_scalar_chunks(
            db,
            grant.experiment_id,
            ids,
            points.steps,
            limits.SCAN_CHUNK_POINTS,
            attempts={id_: AttemptScan(time) for id_, time in before.items()},
        )
        yield from _read_scalars(chunks, group, points.steps.last)
        return

    reader = VALUE_READERS[data_class]
    if before:
        times = {id_: before.get(id_, math.inf) for id_ in ids}
        rows = attempt_scan.stream(db, reader.row_type, grant.experiment_id, times, points.steps)
    else:
        rows = value_scan.stream(db, reader.row_type, grant.experiment_id, ids, points.steps)
    for series, rows_of_series, is_complete in _by_series(rows, group):
        sample = reader.make_sample(db, grant, rows_of_series, points.indices, series.count)
        yield _SeriesRead(series, sample, is_complete)


def _read_scalars(
    chunks: Iterable[tuple[int, ScalarPoints]], group: Sequence[Series], last_step: int
) -> Iterator[_SeriesRead]:
    count = 0
    by_series = groupby(chunks, itemgetter(0))
    # Not strict: series without points in the range still have a chunk, and a read may stop early.
    for series, (_, chunks_of_series) in zip(group, by_series, strict=False):
        kept: list[ScalarPoints] = []
        for _, points in chunks_of_series:
            kept.append(points)
            count += len(points)
            if (
                count > limits.SCAN_CHUNK_POINTS
                and len(points)
                and int(points.steps[-1]) < last_step
            ):
                yield _SeriesRead(series, _scalar_sample(series, kept), is_complete=False)
                return
        yield _SeriesRead(series, _scalar_sample(series, kept), is_complete=True)


def _scalar_sample(series: Series, chunks: list[ScalarPoints]) -> ScalarSample:
    points = concatenate(chunks)
    return ScalarSample(points.steps, points.wall_times, points.values, series.count)


def _by_series(
    rows: Iterator[ValueRow], group: Sequence[Series]
) -> Iterator[tuple[Series, list[ValueRow], bool]]:
    """Yield each series with its rows and whether these are all, up to `SCAN_CHUNK_BYTES`."""
    size = 0
    row = next(rows, None)
    for series in group:
        kept: list[ValueRow] = []
        while row is not None and row.series_id == series.series_id:
            if size > limits.SCAN_CHUNK_BYTES and kept:
                yield series, kept, False
                return
            kept.append(row)
            size += row.size
            row = next(rows, None)

        yield series, kept, True
        if size > limits.SCAN_CHUNK_BYTES:
            return
    assert row is None  # noqa: S101 - rows are ordered by series, as the group is
