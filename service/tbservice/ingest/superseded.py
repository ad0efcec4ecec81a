"""Keep the points of a batch, and those that it replaces, that lose to a later attempt of the run.

Scalars are found only within the batch: compaction finds the others. Tensors and blob
sequences are compared with the stored points, which they are about to replace.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection

from tbservice.ingest.batch import SentPoints
from tbservice.ingest.batch_size import as_usage
from tbservice.ingest.series_updates import SeriesUpdate
from tbservice.ingest.series_writer import encode_values
from tbservice.sample_order import compute_rank_and_key
from tbservice.series import superseded
from tbservice.series.restarts import find_periods, get_starts, read_bounds, select_superseded
from tbservice.series.tables import sample_slots, superseded_points
from tbservice.series.tables.points import PointKeys, Upserted
from tbservice.series.tables.stream_times import StreamTimes
from tbservice.series.tables.upload_streams import CursorMove
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import Float64s, Ranks
from tbservice.types.quotas import Usage
from tbwire.points import DataClass, Rows, ScalarPoints

_VALUE_CLASSES: Final = (DataClass.TENSOR, DataClass.BLOB_SEQUENCE)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Points that the batch has of one series, and the restarts of its run."""

    update: SeriesUpdate
    restarts: Float64s
    points: SentPoints

    def select(self, kept: Rows) -> _Candidates:
        """Return some of the candidates."""
        return replace(self, points=self.points.select(kept))


def keep(
    db: Connection,
    grant: AppendGrant,
    updates: Sequence[SeriesUpdate],
    moves: Sequence[CursorMove],
    restarted: Collection[int],
) -> Usage:
    """Store superseded points before the batch is inserted; return what that adds.

    Costs nothing in runs of one file, and where every point follows those of before.

    Args:
        db: A transaction that has locked the rows of the series.
        grant: Grant on the experiment.
        updates: Points that the batch adds to each series.
        moves: The streams of the batch, which are written after this.
        restarted: The ids of the runs that may have several files.
    """
    suspects = [update for update in updates if _is_suspect(update, restarted)]
    if not suspects:
        return Usage()
    by_run = read_bounds(
        db,
        grant.experiment_id,
        {update.row.run_id for update in suspects},
        _group_moves(moves),
    )
    suspects = [update for update in suspects if update.row.run_id in by_run]
    restarts = {update.series_id: by_run[update.row.run_id] for update in suspects}
    kept = Usage(superseded.keep(db, grant, _list_repeated_scalars(suspects), restarts))
    for data_class in _VALUE_CLASSES:
        group = [update for update in suspects if update.row.data_class == data_class]
        for added in _keep_values(db, grant, data_class, group, restarts) if group else ():
            kept = kept.plus(as_usage(data_class, added))
    return kept


def _is_suspect(update: SeriesUpdate, restarted: Collection[int]) -> bool:
    """Return whether a point of another attempt may be lost.

    Another batch may have added a file to the run since its streams were read, before it was
    locked. Then this batch's points are earlier than the points of that file.
    """
    is_restarted = update.row.run_id in restarted
    if update.row.data_class == DataClass.SCALAR:  # compaction compares them with stored ones
        return update.repeated is not None and is_restarted
    return (update.repeated is not None or update.is_rewrite) and (is_restarted or update.is_late)


def _group_moves(moves: Sequence[CursorMove]) -> dict[int, list[StreamTimes]]:
    by_run: defaultdict[int, list[StreamTimes]] = defaultdict(list)
    for move in moves:
        start = -math.inf if move.start_time is None else move.start_time
        by_run[move.run_id].append(
            StreamTimes(
                move.stream_digest,
                math.inf if move.start else start,
                -math.inf if move.last_wall_time is None else move.last_wall_time,
            )
        )
    return by_run


def _list_repeated_scalars(updates: Sequence[SeriesUpdate]) -> dict[int, ScalarPoints]:
    return {
        update.series_id: update.repeated
        for update in updates
        if isinstance(update.repeated, ScalarPoints)
    }


def _keep_values(
    db: Connection,
    grant: AppendGrant,
    data_class: DataClass,
    updates: Sequence[SeriesUpdate],
    restarts: Mapping[int, Float64s],
) -> Iterator[Upserted]:
    """Store points of one data class; yield what each statement adds."""
    ranks = sample_slots.get_ranks(db)
    losers = [
        candidates
        for update in updates
        if (candidates := _select_repeated(update, restarts[update.series_id])) is not None
    ]
    sent = [
        _list_sent(update, restarts[update.series_id]) for update in updates if update.is_rewrite
    ]
    if sent:
        lost, copied = _compare_with_shown(db, grant, data_class, sent, ranks)
        losers += lost
        yield copied
    losers = [candidates for candidates in losers if len(candidates.points)]
    if losers:
        yield _insert(db, grant, data_class, losers, ranks)


def _select_repeated(update: SeriesUpdate, restarts: Float64s) -> _Candidates | None:
    """Return the points that lose to others of the batch, and are to be kept."""
    if update.repeated is None:
        return None
    points = update.repeated
    kept = select_superseded(points.steps, points.wall_times, restarts).indices
    return _Candidates(update, restarts, points.select(kept))


def _list_sent(update: SeriesUpdate, restarts: Float64s) -> _Candidates:
    """Return the newest points of the batch, which are compared with the stored ones."""
    assert update.deduplicated is not None  # noqa: S101 - points were accepted
    return _Candidates(update, restarts, update.deduplicated)


def _compare_with_shown(
    db: Connection,
    grant: AppendGrant,
    data_class: DataClass,
    sent: Sequence[_Candidates],
    ranks: Ranks,
) -> tuple[list[_Candidates], Upserted]:
    """Copy the stored points that are superseded; return the sent ones that are, and the copies."""
    keys = _make_keys(sent, ranks)
    indices, shown = superseded_points.find_wall_times(db, grant.experiment_id, data_class, keys)
    shown_wall_times = np.full(len(keys.steps), np.nan)
    shown_wall_times[indices] = shown

    lost: list[_Candidates] = []
    replaced = np.zeros(len(keys.steps), np.bool_)
    period_starts: list[Float64s] = []
    start = 0
    for candidates in sent:
        rows = slice(start, start + len(candidates.points))
        start = rows.stop
        wall_times = shown_wall_times[rows]
        is_known = ~np.isnan(wall_times)
        shown_periods = find_periods(wall_times, candidates.restarts)
        periods = find_periods(candidates.points.wall_times, candidates.restarts)
        lost.append(candidates.select(np.flatnonzero(is_known & (periods < shown_periods))))
        is_replaced = is_known & (shown_periods < periods)
        replaced[rows] = is_replaced
        period_starts.append(get_starts(shown_periods[is_replaced], candidates.restarts))
    if not replaced.any():
        return lost, Upserted({}, 0)
    selected = _select_keys(keys, replaced)
    return lost, superseded_points.keep_shown(
        db, grant.experiment_id, data_class, selected, np.concatenate(period_starts)
    )


def _insert(
    db: Connection,
    grant: AppendGrant,
    data_class: DataClass,
    losers: Sequence[_Candidates],
    ranks: Ranks,
) -> Upserted:
    keys = _make_keys(losers, ranks)
    period_starts = np.concatenate(
        [
            get_starts(
                find_periods(candidates.points.wall_times, candidates.restarts),
                candidates.restarts,
            )
            for candidates in losers
        ]
    )
    values = encode_values(data_class, [candidates.points for candidates in losers])
    return superseded_points.insert(db, grant, data_class, keys, period_starts, values)


def _make_keys(groups: Sequence[_Candidates], ranks: Ranks) -> PointKeys:
    steps = np.concatenate([group.points.steps for group in groups])
    wall_times = np.concatenate([group.points.wall_times for group in groups])
    point_ranks, sample_keys = compute_rank_and_key(steps, ranks)
    series_ids = np.repeat(
        [group.update.series_id for group in groups], [len(group.points) for group in groups]
    )
    return PointKeys(series_ids, point_ranks, sample_keys, steps, wall_times)


def _select_keys(keys: PointKeys, selected: Any) -> PointKeys:
    return PointKeys(
        keys.series_ids[selected],
        keys.ranks[selected],
        keys.sample_keys[selected],
        keys.steps[selected],
        keys.wall_times[selected],
    )
