"""What a batch adds to each series, reckoned before anything is written: the newest of each step, and where it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tbservice import limits
from tbservice.ingest.batch import BlobSequencePoints, Segment, SentPoints, SentSeries
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.store import runs_tags
from tbservice.store.scalar_format import ScalarPoints, concatenate, count_raw, pack, pack_raw
from tbservice.store.scalar_tail import BufferRow
from tbservice.store.series_rows import RunTagIds, SeriesKey, SeriesState
from tbservice.types import DataClass
from tbwire.tag_owners import belongs_to_owner, misfit_reason

HPARAMS = "hparams"
"""The one plugin whose whole content is in its metadata: there the newest wins, elsewhere the first."""

NEVER_REWRITTEN = 2**63 - 1
"""The `rewritten_from` of a series whose every batch came after its last step."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IncomingPoints:
    """One segment's part of a series, with the segment it came in."""

    segment: Segment
    series: SentSeries


IncomingBySeries = Mapping[SeriesKey, Sequence[IncomingPoints]]


@dataclass(slots=True)
class SeriesUpdate:
    """What a batch adds to a series, whose state says already what it will be then.

    `deduplicated` is the newest point of each step, in step order; the values of tensors and blob sequences are indices into
    `accepted`. `metadata` is what takes the place of the series' own, serialized. Many scalars open blocks, few become
    rows of the tail, or wait at its end; open blocks are older than the tail, so that behind one many are a row of it.
    """

    state: SeriesState
    accepted: list[SentPoints] = field(default_factory=list)
    deduplicated: ScalarPoints | None = None
    metadata: bytes | None = None
    is_new: bool = False
    opens_blocks: bool = False
    tail_rows: list[BufferRow] = field(default_factory=list)
    skipped: list[tuple[int, str, int]] = field(
        default_factory=list
    )  # by segment: why, and how many points

    @property
    def series_id(self) -> int:
        """The series' id, once it is made."""
        return self.state.series_id


def group_by_series(segments: Iterable[Segment], run_ids: dict[str, int]) -> IncomingBySeries:
    """Return what the segments bring for each series, in the batch's order."""
    incoming: defaultdict[SeriesKey, list[IncomingPoints]] = defaultdict(list)
    tag_digests: dict[str, bytes] = {}
    for segment in segments:
        run_id = run_ids[segment.stream.run]
        for series in segment.series:
            tag_digest = tag_digests.get(series.tag) or tag_digests.setdefault(
                series.tag, runs_tags.hash_name(series.tag)
            )
            incoming[run_id, tag_digest].append(IncomingPoints(segment, series))
    return incoming


def plan_new_series(ids: RunTagIds, incoming: Sequence[IncomingPoints]) -> SeriesUpdate:
    """What makes a series: the first metadata says what it is."""
    metadata, points = next(
        (part.series.metadata, part.series.points)
        for part in incoming
        if part.series.metadata is not None
    )
    step, early = int(points.steps[0]), -np.inf
    state = SeriesState(
        series_id=0,
        run_id=ids[0],
        tag_id=ids[1],
        plugin=metadata.plugin,
        data_class=metadata.data_class,
        metadata_wall_time=float(points.wall_times.max()),
        count=0,
        count_is_exact=True,
        sealed_count=0,
        tail_rows=0,
        tail_points=0,
        max_length=0,
        first_step=step,
        first_wall_time=early,
        first_value=None,
        last_step=step,
        last_wall_time=early,
        last_value=None,
        max_wall_time=early,
        rewrites=0,
        rewritten_from=NEVER_REWRITTEN,
        tail_end=b"",
    )
    update = plan_update(incoming, state)
    update.is_new = True
    update.metadata = update.metadata or metadata.serialized
    if state.data_class != DataClass.SCALAR and update.deduplicated is not None:
        state.count = len(update.deduplicated)
    return update


def plan_update(incoming: Sequence[IncomingPoints], state: SeriesState) -> SeriesUpdate:
    """What of the parts fits the series, and the state brought up to date with it."""
    update = SeriesUpdate(state)
    for part in incoming:
        points = part.series.points
        plugin = None if part.series.metadata is None else part.series.metadata.plugin
        if not belongs_to_owner((plugin, part.series.data_class), (state.plugin, state.data_class)):
            reason = misfit_reason(part.series.tag, state.plugin)
            update.skipped.append((part.segment.index, reason, len(points.steps)))
            continue
        update.accepted.append(points)
        if state.plugin == HPARAMS and part.series.metadata is not None:
            wall_time = float(points.wall_times.max())
            if wall_time >= state.metadata_wall_time:
                update.metadata, state.metadata_wall_time = (
                    part.series.metadata.serialized,
                    wall_time,
                )
    if update.accepted:
        _deduplicate(update)
    return update


def _deduplicate(update: SeriesUpdate) -> None:
    """Chooses the newest point of each step, and notes what they change of the series' state."""
    state = update.state
    if state.data_class == DataClass.SCALAR:
        deduplicated = deduplicate_steps(concatenate(select_type(ScalarPoints, update.accepted)))
        _record_rewrite(state, deduplicated)
        is_append = state.count == 0 or int(deduplicated.steps[0]) > state.last_step
        state.count_is_exact &= is_append
        state.count += len(deduplicated)
        state.tail_points += len(deduplicated)
        update.opens_blocks = (
            len(deduplicated) >= limits.PACKED_POINTS_MIN
            and not state.tail_rows
            and not state.tail_end
        )
        if not update.opens_blocks:
            _append_to_buffer(update, deduplicated, is_append=is_append)
        _update_first_and_last(state, deduplicated)
    else:
        steps = np.concatenate([part.steps for part in update.accepted])
        wall_times = np.concatenate([part.wall_times for part in update.accepted])
        deduplicated = deduplicate_steps(
            ScalarPoints(steps, wall_times, np.arange(len(steps), dtype=np.float64))
        )
        _record_rewrite(state, deduplicated)
        _update_first_and_last(state, deduplicated)
        state.first_value = state.last_value = None
        for part in select_type(BlobSequencePoints, update.accepted):
            state.max_length = max(state.max_length, *map(len, part.sequences))
    update.deduplicated = deduplicated


def _append_to_buffer(update: SeriesUpdate, points: ScalarPoints, *, is_append: bool) -> None:
    """Puts points in step order behind a series' tail: at its end while they are few there, else in rows.

    What does not go on behind the last step is kept apart from what came before: each row is in step order.
    """
    state, is_packed = update.state, len(points) >= limits.PACKED_POINTS_MIN
    if state.tail_end and (is_packed or not is_append):
        _flush_inline_buffer(update)
    if is_packed:
        update.tail_rows.append(BufferRow(len(points), is_packed=True, data=pack(points)))
    else:
        state.tail_end += pack_raw(points)
        if count_raw(state.tail_end) >= limits.WRITE_BUFFER_ROW_POINTS_MIN:
            _flush_inline_buffer(update)
    state.tail_rows += len(update.tail_rows)


def _flush_inline_buffer(update: SeriesUpdate) -> None:
    """Makes a row of the end of the tail."""
    end, update.state.tail_end = update.state.tail_end, b""
    update.tail_rows.append(BufferRow(count_raw(end), is_packed=False, data=end))


def _record_rewrite(state: SeriesState, points: ScalarPoints) -> None:
    """Notes that some of the points are not after the series' last step: a reader has to look there again."""
    first = int(points.steps[0])
    if state.count and first <= state.last_step:
        state.rewrites += 1
        state.rewritten_from = min(state.rewritten_from, first)


def _update_first_and_last(state: SeriesState, points: ScalarPoints) -> None:
    """Moves a series' first and last point; on the same step the greater wall time wins, then the later arrival.

    A point with the greatest wall time of all is never one that another takes the place of.
    """
    first, first_wall_time = int(points.steps[0]), float(points.wall_times[0])
    last, last_wall_time = int(points.steps[-1]), float(points.wall_times[-1])
    if first < state.first_step or (
        first == state.first_step and first_wall_time >= state.first_wall_time
    ):
        state.first_step, state.first_wall_time, state.first_value = (
            first,
            first_wall_time,
            float(points.values[0]),
        )
    if last > state.last_step or (
        last == state.last_step and last_wall_time >= state.last_wall_time
    ):
        state.last_step, state.last_wall_time, state.last_value = (
            last,
            last_wall_time,
            float(points.values[-1]),
        )
    state.max_wall_time = max(state.max_wall_time, float(points.wall_times.max()))


def select_type(points_type: type[T], points: Iterable[SentPoints]) -> list[T]:
    """Those of the parts that are of this kind."""
    return [item for item in points if isinstance(item, points_type)]
