"""What a batch adds to each series, reckoned before anything is written: the newest of each step, and where it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tbservice import limits
from tbservice.ingest.decode import BlobSequencePoints, Segment, SentPoints, SentSeries
from tbservice.scalars.dedup import newest_of_each_step
from tbservice.store import runs_tags
from tbservice.store.scalar_format import Points, concatenate, count_raw, pack, pack_raw
from tbservice.store.scalar_tail import TailRow
from tbservice.store.series_rows import SeriesKey, SeriesName, SeriesState
from tbservice.types import DataClass
from tbwire.tag_owners import fits, misfit_reason

HPARAMS = "hparams"
"""The one plugin whose whole content is in its metadata: there the newest wins, elsewhere the first."""

NEVER_REWRITTEN = 2**63 - 1
"""The `rewritten_from` of a series whose every batch came after its last step."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One segment's part of a series, with the segment it came in."""

    segment: Segment
    series: SentSeries


Arrivals = Mapping[SeriesKey, Sequence[Arrival]]


@dataclass(slots=True)
class Addition:
    """What a batch adds to a series, whose state says already what it will be then.

    `kept` is the newest point of each step, in step order; the values of tensors and blob sequences are indices into
    `parts`. `metadata` is what takes the place of the series' own, serialized. Many scalars open blocks, few become
    rows of the tail, or wait at its end; open blocks are older than the tail, so that behind one many are a row of it.
    """

    state: SeriesState
    parts: list[SentPoints] = field(default_factory=list)
    kept: Points | None = None
    metadata: bytes | None = None
    is_new: bool = False
    opens_blocks: bool = False
    tail_rows: list[TailRow] = field(default_factory=list)
    skipped: list[tuple[int, str, int]] = field(default_factory=list)  # by segment: why, and how many points

    @property
    def series_id(self) -> int:
        """The series' id, once it is made."""
        return self.state.series_id


def arrivals_by_series(segments: Iterable[Segment], run_ids: dict[str, int]) -> Arrivals:
    """Return what the segments bring for each series, in the batch's order."""
    arrivals: defaultdict[SeriesKey, list[Arrival]] = defaultdict(list)
    tag_digests: dict[str, bytes] = {}
    for segment in segments:
        run_id = run_ids[segment.stream.run]
        for series in segment.series:
            tag_digest = tag_digests.get(series.tag) or tag_digests.setdefault(series.tag, runs_tags.digest(series.tag))
            arrivals[run_id, tag_digest].append(Arrival(segment, series))
    return arrivals


def new_addition(name: SeriesName, parts: Sequence[Arrival]) -> Addition:
    """What makes a series: the first metadata says what it is."""
    metadata, points = next(
        (part.series.metadata, part.series.points) for part in parts if part.series.metadata is not None
    )
    step, early = int(points.steps[0]), -np.inf
    state = SeriesState(
        series_id=0,
        run_id=name[0],
        tag_id=name[1],
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
    addition = addition_to(parts, state)
    addition.is_new = True
    addition.metadata = addition.metadata or metadata.serialized
    if state.data_class != DataClass.SCALAR and addition.kept is not None:
        state.count = len(addition.kept)
    return addition


def addition_to(parts: Sequence[Arrival], state: SeriesState) -> Addition:
    """What of the parts fits the series, and the state brought up to date with it."""
    addition = Addition(state)
    for part in parts:
        points = part.series.points
        plugin = None if part.series.metadata is None else part.series.metadata.plugin
        if not fits((plugin, part.series.data_class), (state.plugin, state.data_class)):
            reason = misfit_reason(part.series.tag, state.plugin)
            addition.skipped.append((part.segment.index, reason, len(points.steps)))
            continue
        addition.parts.append(points)
        if state.plugin == HPARAMS and part.series.metadata is not None:
            wall_time = float(points.wall_times.max())
            if wall_time >= state.metadata_wall_time:
                addition.metadata, state.metadata_wall_time = part.series.metadata.serialized, wall_time
    if addition.parts:
        _keep_newest(addition)
    return addition


def _keep_newest(addition: Addition) -> None:
    """Chooses the newest point of each step, and notes what they change of the series' state."""
    state = addition.state
    if state.data_class == DataClass.SCALAR:
        kept = newest_of_each_step(concatenate(parts_of(Points, addition.parts)))
        _note_rewrite(state, kept)
        goes_on = state.count == 0 or int(kept.steps[0]) > state.last_step
        state.count_is_exact &= goes_on
        state.count += len(kept)
        state.tail_points += len(kept)
        addition.opens_blocks = len(kept) >= limits.packed_points_min and not state.tail_rows and not state.tail_end
        if not addition.opens_blocks:
            _extend_tail(addition, kept, goes_on=goes_on)
        _note_ends(state, kept)
    else:
        steps = np.concatenate([part.steps for part in addition.parts])
        wall_times = np.concatenate([part.wall_times for part in addition.parts])
        kept = newest_of_each_step(Points(steps, wall_times, np.arange(len(steps), dtype=np.float64)))
        _note_rewrite(state, kept)
        _note_ends(state, kept)
        state.first_value = state.last_value = None
        for part in parts_of(BlobSequencePoints, addition.parts):
            state.max_length = max(state.max_length, *map(len, part.sequences))
    addition.kept = kept


def _extend_tail(addition: Addition, points: Points, *, goes_on: bool) -> None:
    """Puts points in step order behind a series' tail: at its end while they are few there, else in rows.

    What does not go on behind the last step is kept apart from what came before: each row is in step order.
    """
    state, is_packed = addition.state, len(points) >= limits.packed_points_min
    if state.tail_end and (is_packed or not goes_on):
        _end_row(addition)
    if is_packed:
        addition.tail_rows.append(TailRow(len(points), is_packed=True, data=pack(points)))
    else:
        state.tail_end += pack_raw(points)
        if count_raw(state.tail_end) >= limits.tail_row_points_min:
            _end_row(addition)
    state.tail_rows += len(addition.tail_rows)


def _end_row(addition: Addition) -> None:
    """Makes a row of the end of the tail."""
    end, addition.state.tail_end = addition.state.tail_end, b""
    addition.tail_rows.append(TailRow(count_raw(end), is_packed=False, data=end))


def _note_rewrite(state: SeriesState, points: Points) -> None:
    """Notes that some of the points are not after the series' last step: a reader has to look there again."""
    first = int(points.steps[0])
    if state.count and first <= state.last_step:
        state.rewrites += 1
        state.rewritten_from = min(state.rewritten_from, first)


def _note_ends(state: SeriesState, points: Points) -> None:
    """Moves a series' first and last point; on the same step the greater wall time wins, then the later arrival.

    A point with the greatest wall time of all is never one that another takes the place of.
    """
    first, first_wall_time = int(points.steps[0]), float(points.wall_times[0])
    last, last_wall_time = int(points.steps[-1]), float(points.wall_times[-1])
    if first < state.first_step or (first == state.first_step and first_wall_time >= state.first_wall_time):
        state.first_step, state.first_wall_time, state.first_value = first, first_wall_time, float(points.values[0])
    if last > state.last_step or (last == state.last_step and last_wall_time >= state.last_wall_time):
        state.last_step, state.last_wall_time, state.last_value = last, last_wall_time, float(points.values[-1])
    state.max_wall_time = max(state.max_wall_time, float(points.wall_times.max()))


def parts_of(kind: type[T], parts: Iterable[SentPoints]) -> list[T]:
    """Those of the parts that are of this kind."""
    return [part for part in parts if isinstance(part, kind)]
