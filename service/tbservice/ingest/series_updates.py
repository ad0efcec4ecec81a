"""Plan what a batch adds to each series, before anything is written.

The plan has the newest point of each step, and whether it goes to an open block, the write buffer
or the inline buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tbservice import limits
from tbservice.ingest.batch import Segment, SentPoints, SentSeries
from tbservice.scalars.dedup import deduplicate_steps
from tbservice.store import runs_tags
from tbservice.store.scalar_format import concatenate, count_raw, pack, pack_raw
from tbservice.store.scalar_tail import BufferRow
from tbservice.store.series_rows import RunTagIds, SeriesKey, SeriesState
from tbservice.types import INT64_MAX
from tbwire.hparams_union import MetadataUnion, UnionOverLimit
from tbwire.points import BlobSequencePoints, DataClass, ScalarPoints
from tbwire.points import concatenate as concatenate_values
from tbwire.tag_owners import HPARAMS, belongs_to_owner, misfit_reason

NEVER_REWRITTEN = 2**63 - 1
"""`rewritten_from` of a series with all batches after its last step."""


IncomingBySeries = Mapping[SeriesKey, Sequence[SentSeries]]


@dataclass(slots=True)
class SeriesUpdate:
    """What a batch adds to a series; `state` is the row of the series after the batch.

    `deduplicated` is the newest point of each step, in step order. `metadata` replaces that of the
    series, serialized; None keeps it. Many scalars become open blocks, unless points are buffered:
    open blocks arrived before the buffered points. Else they become rows of the write buffer, and a
    few wait in the inline buffer.
    """

    state: SeriesState
    accepted: list[SentPoints] = field(default_factory=list)
    deduplicated: SentPoints | None = None
    metadata: bytes | None = None
    is_new: bool = False
    opens_blocks: bool = False
    tail_rows: list[BufferRow] = field(default_factory=list)
    skipped: list[tuple[int, str, int]] = field(default_factory=list)
    """Index of a segment, reason, and number of points that were skipped."""
    repeated: SentPoints | None = None
    """All points, in order of arrival, if the batch has several of a step."""
    is_rewrite: bool = False
    """Whether a point does not follow the last step that was stored before."""
    is_late: bool = False
    """Whether, with a rewrite, a point is earlier than the newest that was stored before."""

    @property
    def series_id(self) -> int:
        """Return the id of the series; 0 before it is created."""
        return self.state.series_id


def group_by_series(segments: Iterable[Segment], run_ids: dict[str, int]) -> IncomingBySeries:
    """Return the points of the segments for each series, in the order of the batch."""
    incoming: defaultdict[SeriesKey, list[SentSeries]] = defaultdict(list)
    tag_digests: dict[str, bytes] = {}
    for segment in segments:
        run_id = run_ids[segment.stream.run]
        for series in segment.series:
            tag_digest = tag_digests.get(series.tag) or tag_digests.setdefault(
                series.tag, runs_tags.hash_name(series.tag)
            )
            incoming[run_id, tag_digest].append(series)
    return incoming


def plan_new_series(ids: RunTagIds, incoming: Sequence[SentSeries]) -> SeriesUpdate:
    """Plan a series to create; its plugin and data class are those of the first metadata."""
    metadata, points = next(
        (series.metadata, series.points) for series in incoming if series.metadata is not None
    )
    step = int(points.steps[0])
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
        first_wall_time=-np.inf,
        first_value=None,
        last_step=step,
        last_wall_time=-np.inf,
        last_value=None,
        max_wall_time=-np.inf,
        rewrites=0,
        rewritten_from=NEVER_REWRITTEN,
        tail_end=b"",
    )

    update = plan_update(incoming, state, metadata.serialized)
    update.is_new = True
    update.metadata = update.metadata or metadata.serialized
    if state.data_class != DataClass.SCALAR and update.deduplicated is not None:
        state.count = len(update.deduplicated)
    return update


def plan_update(
    incoming: Sequence[SentSeries], state: SeriesState, stored_metadata: bytes = b""
) -> SeriesUpdate:
    """Plan the addition of points that fit the series, and update its state.

    Points of another plugin or data class, and hyperparameters that are over a limit together with
    the stored ones, are skipped and counted by reason.

    Args:
        incoming: The points, in the order of the batch.
        state: The series' row.
        stored_metadata: Its serialized metadata; only used if `unites_metadata`.
    """
    update = SeriesUpdate(state)
    union: MetadataUnion | None = None
    for series in incoming:
        points = series.points
        plugin = None if series.metadata is None else series.metadata.plugin
        if not belongs_to_owner((plugin, series.data_class), (state.plugin, state.data_class)):
            reason = misfit_reason(series.tag, state.plugin)
            update.skipped.append((series.segment_index, reason, len(points.steps)))
            continue
        if series.follows_last_step and isinstance(points, ScalarPoints) and state.count:
            if state.last_step > INT64_MAX - len(points):
                reason = "no steps are left after the last one of the series"
                update.skipped.append((series.segment_index, reason, len(points.steps)))
                continue
            steps = points.steps + (state.last_step + 1)
            points = ScalarPoints(steps, points.wall_times, points.values)
        if plugin == HPARAMS and series.metadata is not None:
            wall_time = float(points.wall_times.max())
            union = union or MetadataUnion(stored_metadata, state.metadata_wall_time)
            try:
                union.add(series.metadata.serialized, wall_time, limits.METADATA_BYTES_MAX)
            except UnionOverLimit as error:
                update.skipped.append((series.segment_index, str(error), len(points.steps)))
                continue
        update.accepted.append(points)
    if update.accepted:
        _deduplicate(update)
    if union is not None:
        state.metadata_wall_time = union.wall_time
        united = union.serialize()
        update.metadata = united if united != stored_metadata else None
    return update


def unites_metadata(incoming: Sequence[SentSeries], state: SeriesState) -> bool:
    """Return whether the plan of an update needs the metadata that is stored."""
    return state.plugin == HPARAMS and any(series.metadata is not None for series in incoming)


def _deduplicate(update: SeriesUpdate) -> None:
    """Set the newest point of each step, and update the state with them."""
    state = update.state
    points: SentPoints
    deduplicated: SentPoints
    if state.data_class == DataClass.SCALAR:
        points = concatenate([each for each in update.accepted if isinstance(each, ScalarPoints)])
        deduplicated = deduplicate_steps(points)
        update.is_rewrite = _record_rewrite(state, deduplicated)
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
        points = concatenate_values(update.accepted)
        deduplicated = deduplicate_steps(points)
        update.is_rewrite = _record_rewrite(state, deduplicated)
        update.is_late = update.is_rewrite and bool(points.wall_times.min() < state.max_wall_time)
        _update_first_and_last(state, deduplicated)
        if isinstance(points, BlobSequencePoints):
            state.max_length = max(state.max_length, *map(len, points.sequences))
    update.deduplicated = deduplicated
    if len(deduplicated) < len(points):
        update.repeated = points


def _append_to_buffer(update: SeriesUpdate, points: ScalarPoints, *, is_append: bool) -> None:
    """Append points in step order to the inline buffer, or to the write buffer if they are many.

    Each row is in step order: points that do not follow the last step start a new one.
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
    """Move the points of the inline buffer to a row of the write buffer."""
    data, update.state.tail_end = update.state.tail_end, b""
    update.tail_rows.append(BufferRow(count_raw(data), is_packed=False, data=data))


def _record_rewrite(state: SeriesState, points: SentPoints) -> bool:
    """Record that points do not follow the last step: change feeds must read these again."""
    first = int(points.steps[0])
    if not state.count or first > state.last_step:
        return False
    state.rewrites += 1
    state.rewritten_from = min(state.rewritten_from, first)
    return True


def _update_first_and_last(state: SeriesState, points: SentPoints) -> None:
    """Update first and last point; those of scalars have values.

    On equal steps the greater wall time wins, then the later arrival.
    """
    values = points.values if isinstance(points, ScalarPoints) else None
    first, first_wall_time = int(points.steps[0]), float(points.wall_times[0])
    last, last_wall_time = int(points.steps[-1]), float(points.wall_times[-1])
    if first < state.first_step or (
        first == state.first_step and first_wall_time >= state.first_wall_time
    ):
        state.first_step, state.first_wall_time, state.first_value = (
            first,
            first_wall_time,
            None if values is None else float(values[0]),
        )
    if last > state.last_step or (
        last == state.last_step and last_wall_time >= state.last_wall_time
    ):
        state.last_step, state.last_wall_time, state.last_value = (
            last,
            last_wall_time,
            None if values is None else float(values[-1]),
        )
    state.max_wall_time = max(state.max_wall_time, float(points.wall_times.max()))
