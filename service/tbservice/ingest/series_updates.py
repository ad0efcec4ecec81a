"""Plan what a batch adds to each series, before anything is written.

The plan has the newest point of each step, and whether it goes to an open block, the write buffer
or the inline buffer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tbservice import limits
from tbservice.ingest.batch import Segment, SentPoints, SentSeries
from tbservice.series.dedup import deduplicate_steps
from tbservice.series.tables import runs_tags, summary_format
from tbservice.series.tables.scalar_format import concatenate, count_raw, pack, pack_raw
from tbservice.series.tables.scalar_tail import BufferRow
from tbservice.series.tables.series_rows import RunTagIds, SeriesKey, SeriesRow
from tbservice.types.identifiers import INT64_MAX
from tbwire.hparams_union import MetadataUnion, UnionOverLimit
from tbwire.points import BlobSequencePoints, DataClass, ScalarPoints
from tbwire.points import concatenate as concatenate_values
from tbwire.tag_owners import HPARAMS, belongs_to_owner, misfit_reason

NEVER_REWRITTEN = 2**63 - 1
"""`rewritten_from` of a series with all batches after its last step."""


IncomingBySeries = Mapping[SeriesKey, Sequence[SentSeries]]


@dataclass(slots=True)
class SeriesUpdate:
    """The points that a batch adds to a series; `before` and `row` are its row before and after.

    `deduplicated` is the newest point of each step, in step order. `metadata` replaces that of the
    series, serialized; None keeps it. Many scalars become open blocks, unless points are buffered:
    open blocks arrived before the buffered points. Else they become rows of the write buffer, and a
    few wait in the inline buffer.
    """

    before: SeriesRow
    row: SeriesRow
    series_id: int
    """0 before the series is created. The rows of a new one are without it."""
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


def group_by_series(segments: Iterable[Segment], run_ids: dict[str, int]) -> IncomingBySeries:
    """Return the points of the segments for each series, in the order of the batch."""
    incoming: defaultdict[SeriesKey, list[SentSeries]] = defaultdict(list)
    tag_digests: dict[str, bytes] = {}
    for segment in segments:
        run_id = run_ids[segment.stream.run]
        for series in segment.series:
            # Hashed once per batch: its segments repeat the same few hundred tags.
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
    row = SeriesRow(
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
        # So that the first point replaces all of these, whatever its wall time is.
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

    update = plan_update(incoming, row, metadata.serialized)
    update.is_new = True
    update.metadata = update.metadata or metadata.serialized
    if row.data_class != DataClass.SCALAR and update.deduplicated is not None:
        update.row = update.row._replace(count=len(update.deduplicated))
    return update


def plan_update(
    incoming: Sequence[SentSeries], row: SeriesRow, stored_metadata: bytes = b""
) -> SeriesUpdate:
    """Plan the addition of points that fit the series.

    Points of another plugin or data class, and hyperparameters that are over a limit together with
    the stored ones, are skipped and counted by reason.

    Args:
        incoming: The points, in the order of the batch.
        row: The series' row.
        stored_metadata: Its serialized metadata; only used if `unites_metadata`.
    """
    update = SeriesUpdate(row, row, row.series_id)
    owner = row.plugin, row.data_class
    union: MetadataUnion | None = None
    for series in incoming:
        metadata, points = series.metadata, series.points
        plugin = None if metadata is None else metadata.plugin
        if not belongs_to_owner((plugin, points.data_class), owner):
            reason = misfit_reason(series.tag, row.plugin)
            update.skipped.append((series.segment_index, reason, len(points.steps)))
            continue
        if series.follows_last_step and isinstance(points, ScalarPoints) and row.count:
            # numpy would wrap around without an error:
            # https://numpy.org/doc/stable/user/basics.types.html#overflow-errors
            if row.last_step > INT64_MAX - len(points):
                reason = "no steps are left after the last one of the series"
                update.skipped.append((series.segment_index, reason, len(points.steps)))
                continue
            steps = points.steps + (row.last_step + 1)
            points = ScalarPoints(steps, points.wall_times, points.values)
        if plugin == HPARAMS and metadata is not None:
            wall_time = float(points.wall_times.max())
            union = union or MetadataUnion(stored_metadata, row.metadata_wall_time)
            try:
                union.add(metadata.serialized, wall_time, limits.METADATA_BYTES_MAX)
            except UnionOverLimit as error:
                update.skipped.append((series.segment_index, str(error), len(points.steps)))
                continue
        update.accepted.append(points)
    if update.accepted:
        _add_points(update)
    if union is not None:
        update.row = update.row._replace(metadata_wall_time=union.wall_time)
        united = union.serialize()
        # A value out of line is written again by any UPDATE that sets it:
        # https://www.postgresql.org/docs/18/storage-toast.html
        update.metadata = united if united != stored_metadata else None
    return update


def unites_metadata(incoming: Sequence[SentSeries], row: SeriesRow) -> bool:
    """Return whether the plan of an update needs the metadata that is stored."""
    return row.plugin == HPARAMS and any(series.metadata is not None for series in incoming)


def _add_points(update: SeriesUpdate) -> None:
    """Set the newest point of each step, where they go, and the row after them.

    A live flush has one point of each of many series: hence no look twice, and no column by name.
    """
    before, accepted = update.before, update.accepted
    points = accepted[0] if len(accepted) == 1 else _join(accepted)
    newest = update.deduplicated = deduplicate_steps(points)
    if newest is not points and len(newest) < len(points):
        update.repeated = points

    first = newest.steps.item(0)
    cold: dict[str, Any] = {}
    # The last step itself included: its point may be replaced.
    if before.count and first <= before.last_step:  # change feeds must read these again
        update.is_rewrite = True
        cold["rewrites"] = before.rewrites + 1
        cold["rewritten_from"] = min(before.rewritten_from, first)
    cold |= _find_start(before, newest, first)
    if isinstance(points, BlobSequencePoints):
        cold["max_length"] = max(before.max_length, *map(len, points.sequences))
    row = before._replace(**cold) if cold else before
    if isinstance(newest, ScalarPoints):
        update.row = _add_scalars(update, row, newest)
        return
    update.is_late = update.is_rewrite and bool(points.wall_times.min() < before.max_wall_time)
    last_step, last_wall_time, last_value, max_wall_time = _find_end(before, newest)
    update.row = row._replace(
        last_step=last_step,
        last_wall_time=last_wall_time,
        last_value=last_value,
        max_wall_time=max_wall_time,
    )


def _join(accepted: Sequence[SentPoints]) -> SentPoints:
    scalars = [points for points in accepted if isinstance(points, ScalarPoints)]
    return concatenate(scalars) if scalars else concatenate_values(accepted)


def _add_scalars(update: SeriesUpdate, row: SeriesRow, points: ScalarPoints) -> SeriesRow:
    """Plan where the points, in step order, go; return the row with its hot columns changed."""
    before, tail_end, count = update.before, update.before.tail_end, len(points)
    update.opens_blocks = (
        # Buffered points would be older than such a block, and readers take the buffers as later:
        # on equal wall times the wrong point would win.
        count >= limits.PACKED_POINTS_MIN and not before.tail_rows and not tail_end
    )
    if not update.opens_blocks:
        update.tail_rows, tail_end = _append_to_buffer(
            tail_end, points, is_append=not update.is_rewrite
        )
    return row.with_hot(
        before.count + count,
        before.count_is_exact and not update.is_rewrite,
        before.tail_rows + len(update.tail_rows),
        before.tail_points + count,
        *_find_end(before, points),
        tail_end,
        _extend_summary(before, points, is_rewrite=update.is_rewrite),
    )


def _extend_summary(before: SeriesRow, points: ScalarPoints, *, is_rewrite: bool) -> bytes:
    """Return the stored summary with these points; unknown if one may replace another point."""
    if is_rewrite:
        return summary_format.UNKNOWN
    if not before.count:
        first = summary_format.EMPTY.extend(points)
        return summary_format.pack(first, before.rewrites, int(points.steps[-1]))
    return summary_format.extend(before.summary, before.rewrites, before.last_step, points)


def _append_to_buffer(
    tail_end: bytes, points: ScalarPoints, *, is_append: bool
) -> tuple[list[BufferRow], bytes]:
    """Append points in step order to the inline buffer, or to the write buffer if they are many.

    Each row is in step order: points that do not follow the last step start a new one. Returns the
    new rows of the write buffer, and the inline buffer.
    """
    rows: list[BufferRow] = []
    is_packed = len(points) >= limits.PACKED_POINTS_MIN
    # The inline buffer is read as the latest points of all: what follows may not go behind it.
    if tail_end and (is_packed or not is_append):
        rows.append(_make_raw_row(tail_end))
        tail_end = b""
    if is_packed:
        rows.append(BufferRow(len(points), is_packed=True, data=pack(points)))
        return rows, tail_end

    # `bytes` and not a list: it is a column of the row, and short (decision 12).
    tail_end += pack_raw(points)
    if count_raw(tail_end) >= limits.WRITE_BUFFER_ROW_POINTS_MIN:
        rows.append(_make_raw_row(tail_end))
        tail_end = b""
    return rows, tail_end


def _make_raw_row(data: bytes) -> BufferRow:
    return BufferRow(count_raw(data), is_packed=False, data=data)


def _find_start(row: SeriesRow, points: SentPoints, first: int) -> dict[str, Any]:
    """Return the columns of the first point if they change; of scalars with its value.

    On equal steps the greater wall time wins, then the later arrival.
    """
    if first > row.first_step:
        return {}
    wall_time = points.wall_times.item(0)
    if first == row.first_step and wall_time < row.first_wall_time:
        return {}
    value = points.values.item(0) if isinstance(points, ScalarPoints) else None
    return {"first_step": first, "first_wall_time": wall_time, "first_value": value}


def _find_end(row: SeriesRow, points: SentPoints) -> tuple[int, float, float | None, float]:
    """Return step, wall time and value of the last point, and the greatest wall time.

    The points are in step order; which one wins is as in `_find_start`.
    """
    steps, wall_times = points.steps, points.wall_times
    last, wall_time = steps.item(-1), wall_times.item(-1)
    greatest = max(row.max_wall_time, wall_time if len(steps) == 1 else float(wall_times.max()))
    if last < row.last_step or (last == row.last_step and wall_time < row.last_wall_time):
        return row.last_step, row.last_wall_time, row.last_value, greatest
    value = points.values.item(-1) if isinstance(points, ScalarPoints) else None
    return last, wall_time, value, greatest
