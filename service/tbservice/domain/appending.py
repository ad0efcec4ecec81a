"""The series of a batch: made, or locked, and given their points; the newest of each step wins.

A new series is made as it will stand: nothing has to read or change its row again. All that are new are made before
any other is locked, and the others are locked then, both in the order of their names, so that of two batches one waits
for the other, never both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.batch import BlobSequencePoints, Segment, SentPoints, SentSeries, TensorPoints
from tbservice.domain.newest import newest_of_each_step
from tbservice.domain.sampling import rank_and_key
from tbservice.errors import CursorConflict
from tbservice.store import blob_points, sample_slots, scalar_blocks, scalar_tail, series_rows, tensor_points
from tbservice.store.packing import Points, concatenate, count_raw, pack, pack_raw
from tbservice.store.points import Places
from tbservice.store.scalar_blocks import OPEN, NewBlock
from tbservice.store.scalar_tail import TailRow
from tbservice.store.series_rows import SeriesName, SeriesState
from tbservice.types import AppendGrant, DataClass
from tbwire import packing
from tbwire.tag_owners import fits, misfit_reason

HPARAMS = "hparams"
"""The one plugin whose whole content is in its metadata: there the newest wins, elsewhere the first."""

NEVER_REWRITTEN = 2**63 - 1
"""The `rewritten_from` of a series whose every batch came after its last step."""

T = TypeVar("T")


@dataclass(slots=True)
class Counts:
    """How many points went in, and how many blobs."""

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One segment's part of a series, with the segment it came in."""

    segment: Segment
    series: SentSeries


Arrivals = Mapping[SeriesName, Sequence[Arrival]]


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


def arrivals_by_series(segments: Iterable[Segment], run_ids: dict[str, int], tag_ids: dict[str, int]) -> Arrivals:
    """What the segments bring for each series, in the batch's order."""
    arrivals: defaultdict[SeriesName, list[Arrival]] = defaultdict(list)
    for segment in segments:
        run_id = run_ids[segment.stream.run]
        for series in segment.series:
            arrivals[run_id, tag_ids[series.tag]].append(Arrival(segment, series))
    return arrivals


def take_in(db: Connection, grant: AppendGrant, arrivals: Arrivals) -> list[Addition]:
    """Makes the series that are new, locks the others, and says what each is given; their points are not in yet.

    Raises `metadata_missing` when a series is new and came without metadata.
    """
    new = _make(db, grant, arrivals)
    known = [name for name in arrivals if name not in new]
    states = series_rows.lock(db, grant.experiment_id, known) if known else {}
    _check_known(arrivals, known, states)
    return [*new.values(), *(_addition(arrivals[name], states[name]) for name in known)]


def _make(db: Connection, grant: AppendGrant, arrivals: Arrivals) -> dict[SeriesName, Addition]:
    """Makes the series that are not there, but for those that somebody else makes meanwhile."""
    named = [name for name, parts in arrivals.items() if _brings_metadata(parts)]
    if not named:
        return {}
    known = series_rows.find(db, grant.experiment_id, named)
    new = {name: _new_addition(name, arrivals[name]) for name in sorted(set(named) - known)}
    if not new:
        return {}
    states = [addition.state for addition in new.values()]
    made = series_rows.create(db, grant, states, [addition.metadata or b"" for addition in new.values()])
    for name, series_id in made.items():
        new[name].state.series_id = series_id
    return {name: new[name] for name in made}


def _brings_metadata(parts: Sequence[Arrival]) -> bool:
    return any(part.series.metadata is not None for part in parts)


def _check_known(arrivals: Arrivals, known: Iterable[SeriesName], states: Collection[SeriesName]) -> None:
    for name in known:
        if name not in states:
            first = arrivals[name][0]
            detail = f"tag {first.series.tag[:100]!r} is new here: send the segment again with its summary metadata"
            raise _MetadataMissing(detail, segment=first.segment.index, offset=first.segment.start)


class _MetadataMissing(CursorConflict):
    """A series is not known and came without metadata: it was deleted, or the client skipped a beginning."""

    code = "metadata_missing"

    def __init__(self, detail: str, *, segment: int, offset: int) -> None:
        super().__init__(detail, segment=segment, offset=offset, checksum=0)


def _new_addition(name: SeriesName, parts: Sequence[Arrival]) -> Addition:
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
    addition = _addition(parts, state)
    addition.is_new = True
    addition.metadata = addition.metadata or metadata.serialized
    if state.data_class != DataClass.SCALAR and addition.kept is not None:
        state.count = len(addition.kept)
    return addition


def _addition(parts: Sequence[Arrival], state: SeriesState) -> Addition:
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
        kept = newest_of_each_step(concatenate(_of(Points, addition.parts)))
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
        for part in _of(BlobSequencePoints, addition.parts):
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


def count_points(additions: Sequence[Addition]) -> Counts:
    """How many points and blobs the additions are, those that others take the place of included."""
    scalars, tensors, sequences = _by_class(additions)
    blobs = sum(len(blobs) for part in _parts(BlobSequencePoints, sequences) for blobs in part.sequences)
    return Counts(_count(scalars), _count(tensors), blobs)


def insert_values(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    """Inserts tensors and blob sequences, and notes in their series' states how many steps were new."""
    _, tensors, sequences = _by_class(additions)
    if tensors:
        _upsert_tensors(db, grant, tensors)
    if sequences:
        _upsert_blob_sequences(db, grant, sequences)


def insert_scalars(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    """Inserts scalars, and at last writes back the rows of all series that were there; asks for no answers."""
    scalars, tensors, sequences = _by_class(additions)
    if scalars:
        _append_scalars(db, grant, scalars)
    _write_back(db, grant, [*scalars, *tensors, *sequences])


def _by_class(additions: Iterable[Addition]) -> tuple[list[Addition], list[Addition], list[Addition]]:
    by_class: defaultdict[int, list[Addition]] = defaultdict(list)
    for addition in additions:
        if addition.parts:
            by_class[addition.state.data_class].append(addition)
    return by_class[DataClass.SCALAR], by_class[DataClass.TENSOR], by_class[DataClass.BLOB_SEQUENCE]


def _count(additions: Iterable[Addition]) -> int:
    return sum(len(part.steps) for addition in additions for part in addition.parts)


def _of(kind: type[T], parts: Iterable[SentPoints]) -> list[T]:
    return [part for part in parts if isinstance(part, kind)]


def _parts(kind: type[T], additions: Iterable[Addition]) -> Iterator[T]:
    return chain.from_iterable(_of(kind, addition.parts) for addition in additions)


def _write_back(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    known = [addition for addition in additions if not addition.is_new]
    if known:
        series_rows.update(db, grant, [addition.state for addition in known])
    metadata = {addition.series_id: addition.metadata for addition in known if addition.metadata is not None}
    if metadata:
        series_rows.update_metadata(db, grant.experiment_id, metadata)


def _append_scalars(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    rows: list[tuple[int, TailRow]] = []
    blocks: list[NewBlock] = []
    for addition in additions:
        assert addition.kept is not None  # noqa: S101 - as it has parts
        if addition.opens_blocks:
            blocks += _open_blocks(addition.series_id, addition.kept)
        rows += ((addition.series_id, row) for row in addition.tail_rows)
    if rows:
        scalar_tail.append(db, grant, rows)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)


def _open_blocks(series_id: int, points: Points) -> Iterator[NewBlock]:
    """The points as blocks: those they came in, or of about equal length, none too large."""
    if points.blocks:
        bounds = [0, *accumulate(map(packing.count, points.blocks))]
    else:
        count = -(-len(points) // limits.block_points)
        bounds = [len(points) * index // count for index in range(count + 1)]
    for index, (start, end) in enumerate(pairwise(bounds)):
        data = points.blocks[index] if points.blocks else None
        yield NewBlock(series_id, OPEN, points.take(slice(start, end)), data)


def _upsert_tensors(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    tensors = [
        values[index]
        for addition in additions
        for values in [[value for part in _of(TensorPoints, addition.parts) for value in part.tensors]]
        for index in _indices(addition)
    ]
    _note_new_counts(tensor_points.upsert(db, grant, _places(db, additions), tensors), additions)


def _upsert_blob_sequences(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    sequences = [
        [blob.sha256 for blob in values[index]]
        for addition in additions
        for values in [[value for part in _of(BlobSequencePoints, addition.parts) for value in part.sequences]]
        for index in _indices(addition)
    ]
    _note_new_counts(blob_points.upsert(db, grant, _places(db, additions), sequences), additions)


def _indices(addition: Addition) -> list[int]:
    assert addition.kept is not None  # noqa: S101 - as it has parts
    indices: list[int] = addition.kept.values.astype(np.int64).tolist()
    return indices


def _places(db: Connection, additions: Sequence[Addition]) -> Places:
    """Of all kept points their series, their place in the order to sample by, step and wall time."""
    kept = [addition.kept for addition in additions if addition.kept is not None]
    points = concatenate(kept)
    ranks, keys = rank_and_key(points.steps, sample_slots.get_ranks(db))
    series_ids = np.repeat([addition.series_id for addition in additions], [len(each) for each in kept])
    return Places(series_ids, ranks, keys, points.steps, points.wall_times)


def _note_new_counts(new: dict[int, int], additions: Sequence[Addition]) -> None:
    for addition in additions:
        if not addition.is_new:  # whose count stands in its row already
            addition.state.count += new.get(addition.series_id, 0)
