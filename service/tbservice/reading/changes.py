"""What is new since a reader's cursor, in portions: every point once, whatever came in which order.

Every function wants a snapshot (`Database.snapshot`): the cursor and the points it speaks of are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import NotFound, TooLarge
from tbservice.reading import change_cursor
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.reading.change_cursor import PendingChanges
from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.scalars.scan import read_scalar_chunks
from tbservice.store import experiments, scalar_blocks, scalar_tail, series_progress, value_scan
from tbservice.store.scalar_blocks import SEALED
from tbservice.store.scalar_format import concatenate
from tbservice.store.series_progress import SeriesLabel, SeriesProgress
from tbservice.store.value_scan import BlobRow, TensorRow
from tbservice.types import (
    BlobSequenceSample,
    DataClass,
    ExperimentId,
    ReadGrant,
    ScalarSample,
    Selection,
    StepRange,
    TensorSample,
)
from tbwire.digests import Records

Row = TypeVar("Row", TensorRow, BlobRow)
Sample = ScalarSample | TensorSample | BlobSequenceSample


@dataclass(frozen=True, slots=True)
class NewPoints:
    """New points of one series, in step order.

    With `replaces_from`, they take the place of all points that the reader has from that step on; without, they come
    after those it has.
    """

    series_id: int
    label: SeriesLabel
    replaces_from: int | None
    points: Sample


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """A portion of what is new; `has_more` when the next one is there already. `removed` are the ids of deleted series.

    A series that was deleted and made again has another id.
    """

    cursor: str
    has_more: bool
    removed: Sequence[int]
    series: Sequence[NewPoints]


def read_changes(
    db: Connection, grant: ReadGrant, selection: Selection, since: str | None, points_max: int
) -> ChangeSet:
    """What a reader with the cursor `since` is missing of the selected series, from the beginning with None.

    `selection` names one data class. At most `points_max` points and `CHANGES_BYTES_MAX` bytes of tensors, but one point
    at least when there is any. Raises MalformedRequest or Invalid for a cursor that is none or of other series, TooLarge for
    more than `CURSOR_SERIES_ITEMS_MAX` series, NotFound when the experiment has been deleted.
    """
    version, selection_digest = (
        _get_version(db, grant),
        change_cursor.selection_digest(grant.experiment_id, selection),
    )
    before = None if since is None else change_cursor.decode(since, selection_digest)
    if since is not None and before is not None and before.version == version:
        return ChangeSet(since, has_more=False, removed=[], series=[])
    progress = _list_progress(db, grant, selection)
    pending = change_cursor.find_pending(progress, before)
    series_to_read = _choose_series(progress, pending, points_max)
    read = _read(db, grant, selection.data_class, series_to_read, points_max)
    head = change_cursor.head(progress, version, selection_digest)
    cursor = change_cursor.advance(
        progress, before, pending, read.complete_count, read.cut_step, head
    )
    labels = series_progress.get_labels(db, grant.experiment_id, list(read.samples))
    replaced = {one.series_id: one.first_step for one in series_to_read if one.is_replacing}
    series = [
        NewPoints(id_, labels[id_], replaced.get(id_), points)
        for id_, points in read.samples.items()
    ]
    is_incomplete = cursor.version == change_cursor.INCOMPLETE
    return ChangeSet(change_cursor.encode(cursor), is_incomplete, pending.removed.tolist(), series)


def cursor_at_head(db: Connection, grant: ReadGrant, selection: Selection) -> ChangeSet:
    """The cursor of a reader who wants only what comes from now on. Raises as `read_changes`."""
    version, selection_digest = (
        _get_version(db, grant),
        change_cursor.selection_digest(grant.experiment_id, selection),
    )
    head = change_cursor.head(_list_progress(db, grant, selection), version, selection_digest)
    return ChangeSet(change_cursor.encode(head), has_more=False, removed=[], series=[])


def list_versions(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, int]:
    """The version of each of these experiments of one workspace; those that are gone are left out."""
    return experiments.list_versions(db, experiment_ids)


def _get_version(db: Connection, grant: ReadGrant) -> int:
    found = experiments.list_versions(db, [grant.experiment_id])
    if not found:
        raise NotFound("the experiment has been deleted")
    return found[grant.experiment_id]


def _list_progress(db: Connection, grant: ReadGrant, selection: Selection) -> SeriesProgress:
    series_max = limits.CURSOR_SERIES_ITEMS_MAX
    progress = series_progress.list_progress(db, grant.experiment_id, selection, series_max + 1)
    if len(progress) > series_max:
        raise TooLarge(
            f"more than {series_max} series are selected, the limit of what one cursor follows "
            "(cursor_series_items_max); follow fewer runs, tags or plugins at a time"
        )
    return progress


class _PendingSeries(NamedTuple):
    """A series of which all points from step `first_step` on are to be read; at most `points`, among `held_points_max` others."""

    series_id: int
    first_step: int
    is_replacing: bool
    points: int
    held_points_max: int


def _choose_series(
    progress: SeriesProgress, pending: PendingChanges, points_max: int
) -> list[_PendingSeries]:
    """The first of the unread series, as many as surely fit into a portion and into memory; at least one of them."""
    places, firsts = pending.indices, pending.first_steps.astype(np.float64)
    counts = progress.counts[places].astype(np.float64)
    points = np.minimum(
        counts, progress.last_steps[places] - firsts + 1
    )  # steps are whole numbers, one point each
    held_points = np.minimum(counts, points + progress.tail_points[places])
    fitting = min(
        np.searchsorted(np.cumsum(points), points_max, "right"),
        np.searchsorted(np.cumsum(held_points), limits.SCAN_CHUNK_POINTS, "right"),
    )
    chosen = slice(max(1, int(fitting)))
    columns = (
        progress.series_ids[places],
        pending.first_steps,
        pending.is_replacing,
        points.astype(int),
        held_points.astype(int),
    )
    return [
        _PendingSeries(*row)
        for row in zip(*(column[chosen].tolist() for column in columns), strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _ReadResult:
    """Points by series id: of the first `complete_count` wanted series all, of the next one those up to the step `cut_step`."""

    samples: Mapping[int, Sample]
    complete_count: int
    cut_step: int | None = None


def _read(
    db: Connection,
    grant: ReadGrant,
    data_class: DataClass | None,
    wanted: Sequence[_PendingSeries],
    points_max: int,
) -> _ReadResult:
    if not wanted:
        return _ReadResult({}, 0)
    match data_class:
        case DataClass.TENSOR:
            tensors = partial(_tensor_sample, db)
            return _read_values(db, grant, wanted, points_max, value_scan.stream_tensors, tensors)
        case DataClass.BLOB_SEQUENCE:
            return _read_values(
                db,
                grant,
                wanted,
                points_max,
                value_scan.stream_blob_sequences,
                _blob_sequence_sample,
            )
    if wanted[0].points > points_max or wanted[0].held_points_max > limits.SCAN_CHUNK_POINTS:
        return _read_long_series(db, grant, wanted[0], points_max)
    return _read_scalars(db, grant, wanted)


def _read_long_series(
    db: Connection, grant: ReadGrant, wanted: _PendingSeries, points_max: int
) -> _ReadResult:
    """The first `points_max` of a scalar series that may be of any length."""
    pieces: list[Records] = []
    steps = StepRange(wanted.first_step)
    for _, piece in read_scalar_chunks(
        db, grant.experiment_id, [wanted.series_id], steps, limits.SCAN_CHUNK_POINTS
    ):
        pieces.append(piece)
        if sum(map(len, pieces)) > points_max:
            break
    records = np.concatenate(pieces)
    taken = records[:points_max]
    points = ScalarSample(taken["step"], taken["wall_time"], taken["value"], len(taken))
    if len(taken) == len(records):
        return _ReadResult({wanted.series_id: points}, 1)
    return _ReadResult({wanted.series_id: points}, 0, int(taken["step"][-1]))


def _read_scalars(
    db: Connection, grant: ReadGrant, wanted: Sequence[_PendingSeries]
) -> _ReadResult:
    """All that is wanted of scalar series, at once."""
    firsts = {one.series_id: one.first_step for one in wanted}
    ranges = {series_id: StepRange(first) for series_id, first in firsts.items()}
    blocks = scalar_blocks.read(db, grant.experiment_id, dict.fromkeys(firsts, SEALED), ranges)
    tails = scalar_tail.read(db, grant.experiment_id, list(firsts))
    samples: dict[int, Sample] = {}
    for id_, first in firsts.items():
        parts = [*blocks.get(id_, []), *([tails[id_]] if id_ in tails else [])]
        points = deduplicate_steps(
            concatenate([part.select(part.steps >= first) for part in parts])
        )
        samples[id_] = ScalarSample(points.steps, points.wall_times, points.values, len(points))
    return _ReadResult(samples, len(wanted))


def _read_values(
    db: Connection,
    grant: ReadGrant,
    wanted: Sequence[_PendingSeries],
    points_max: int,
    stream: Callable[[Connection, ExperimentId, Sequence[int], StepRange], Iterator[Row]],
    convert: Callable[[ReadGrant, Sequence[Row]], Sample],
) -> _ReadResult:
    """Rows of the wanted series until they are many or large."""
    rows: list[Row] = []
    size = 0
    complete_count, cut_step = len(wanted), None
    for row in _stream_rows(db, grant, wanted, stream):
        size += row.size
        if rows and (len(rows) == points_max or size > limits.CHANGES_BYTES_MAX):
            last = rows[-1]
            complete_count = next(
                place for place, one in enumerate(wanted) if one.series_id == last.series_id
            )
            cut_step = last.step
            break
        rows.append(row)
    by_series = groupby(rows, lambda row: row.series_id)
    return _ReadResult(
        {id_: convert(grant, list(group)) for id_, group in by_series}, complete_count, cut_step
    )


def _stream_rows(
    db: Connection,
    grant: ReadGrant,
    wanted: Sequence[_PendingSeries],
    stream: Callable[[Connection, ExperimentId, Sequence[int], StepRange], Iterator[Row]],
) -> Iterator[Row]:
    """The rows of each series from its first wanted step on: series next to each other mostly stand at the same one."""
    for first, group in groupby(wanted, lambda one: one.first_step):
        ids = [one.series_id for one in group]
        yield from stream(db, grant.experiment_id, ids, StepRange(first))


def _tensor_sample(db: Connection, grant: ReadGrant, rows: Sequence[TensorRow]) -> TensorSample:
    values = [value_scan.make_tensor_value(row) for row in rows]
    return make_tensor_sample(db, grant, rows, values, len(rows))


def _blob_sequence_sample(grant: ReadGrant, rows: Sequence[BlobRow]) -> BlobSequenceSample:
    return make_blob_sequence_sample(grant.experiment_id, rows, ALL_BLOBS, len(rows))
