"""The series of a batch: found or made, locked in id order, and given their points; the newest of each step wins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.batch import BlobSequencePoints, Segment, SentPoints, SentSeries, TensorPoints
from tbservice.domain.newest import newest_of_each_step
from tbservice.domain.sampling import rank_and_key
from tbservice.errors import CursorConflict
from tbservice.store import blob_points, sample_slots, scalar_blocks, scalar_tail, tensor_points, time_series
from tbservice.store.blob_points import BlobPoint
from tbservice.store.packing import Points, concatenate
from tbservice.store.scalar_blocks import OPEN, NewBlock
from tbservice.store.tensor_points import TensorPoint
from tbservice.store.time_series import NewSeries, SeriesState
from tbservice.types import AppendGrant, DataClass, Ranks
from tbwire import packing

HPARAMS = "hparams"
"""The one plugin whose whole content is in its metadata: there the newest wins, elsewhere the first."""

SeriesName = tuple[int, int]
"""Run id and tag id."""


@dataclass(slots=True)
class Counts:
    """How many points went in, and how many blobs."""

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0


@dataclass(slots=True)
class Arrival:
    """One segment's part of a series, with the segment it came in."""

    segment: Segment
    series: SentSeries


def arrivals_by_series(
    segments: Iterable[Segment], run_ids: dict[str, int], tag_ids: dict[str, int]
) -> dict[SeriesName, list[Arrival]]:
    """What the segments bring for each series, in the batch's order."""
    arrivals: defaultdict[SeriesName, list[Arrival]] = defaultdict(list)
    for segment in segments:
        for series in segment.series:
            arrivals[run_ids[segment.stream.run], tag_ids[series.tag]].append(Arrival(segment, series))
    return arrivals


def lock_series(
    db: Connection, grant: AppendGrant, arrivals: dict[SeriesName, list[Arrival]]
) -> dict[SeriesName, SeriesState]:
    """The rows of all the series, made where they are new, locked in id order."""
    if not arrivals:
        return {}
    states = _lock(db, grant, arrivals)
    while len(states) < len(arrivals):
        new = [_new_series(name, parts) for name, parts in arrivals.items() if name not in states]
        time_series.create(db, grant, new)
        # All are locked anew, so that the order holds; a series that was deleted meanwhile is made again.
        states = _lock(db, grant, arrivals)
    return states


def _lock(db: Connection, grant: AppendGrant, wanted: Iterable[SeriesName]) -> dict[SeriesName, SeriesState]:
    run_ids, tag_ids = zip(*wanted, strict=True)
    states = time_series.lock_by_name(db, grant.experiment_id, run_ids, tag_ids)
    return {(state.run_id, state.tag_id): state for state in states}


def _new_series(name: SeriesName, parts: Sequence[Arrival]) -> NewSeries:
    for part in parts:
        metadata = part.series.metadata
        if metadata is not None:
            wall_time = float(part.series.points.wall_times.max())
            step = int(part.series.points.steps[0])
            return NewSeries(*name, metadata.plugin, metadata.data_class, metadata.serialized, wall_time, step)
    first = parts[0]
    detail = f"tag {first.series.tag[:100]!r} is new here: send the segment again with its summary metadata"
    raise _MetadataMissing(detail, segment=first.segment.index, offset=first.segment.start)


class _MetadataMissing(CursorConflict):
    """A series is not known and came without metadata: it was deleted, or the client skipped a beginning."""

    code = "metadata_missing"

    def __init__(self, detail: str, *, segment: int, offset: int) -> None:
        super().__init__(detail, segment=segment, offset=offset, checksum=0)


def take_out_misfits(
    arrivals: dict[SeriesName, list[Arrival]], states: dict[SeriesName, SeriesState]
) -> dict[int, dict[str, int]]:
    """Removes what does not fit the series it names, and counts it by reason for the segment it came in."""
    skipped: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, parts in list(arrivals.items()):
        state = states[name]
        fitting = []
        for part in parts:
            if _fits(part.series, state):
                fitting.append(part)
            else:
                reason = f"tag {part.series.tag[:200]!r} belongs to plugin {state.plugin!r} in this run already"
                skipped[part.segment.index][reason] += len(part.series.points.steps)
        arrivals[name] = fitting
        if not fitting:
            del arrivals[name]
    return {index: dict(reasons) for index, reasons in skipped.items()}


def _fits(series: SentSeries, state: SeriesState) -> bool:
    # A writer that goes on in a second file need not name the plugin again.
    is_same_plugin = series.metadata is None or series.metadata.plugin in {"", state.plugin}
    return is_same_plugin and series.data_class == state.data_class


def insert_points(
    db: Connection,
    grant: AppendGrant,
    arrivals: dict[SeriesName, list[Arrival]],
    states: dict[SeriesName, SeriesState],
) -> Counts:
    """Inserts everything that arrived, class by class, and brings the series' states up to date."""
    by_class: defaultdict[int, dict[SeriesName, list[SentPoints]]] = defaultdict(dict)
    for name, parts in arrivals.items():
        by_class[states[name].data_class][name] = [part.series.points for part in parts]
    counts = Counts()
    if scalars := by_class.get(DataClass.SCALAR):
        counts.scalars = _count(scalars)
        _append_scalars(db, grant, scalars, states)
    ranks = sample_slots.get_ranks(db)
    if tensors := by_class.get(DataClass.TENSOR):
        counts.tensors = _count(tensors)
        _upsert_tensors(db, grant, tensors, states, ranks)
    if sequences := by_class.get(DataClass.BLOB_SEQUENCE):
        counts.blobs = sum(
            sum(map(len, part.sequences))
            for parts in sequences.values()
            for part in parts
            if isinstance(part, BlobSequencePoints)
        )
        _upsert_blob_sequences(db, grant, sequences, states, ranks)
    return counts


def _count(points: dict[SeriesName, list[SentPoints]]) -> int:
    return sum(len(part.steps) for parts in points.values() for part in parts)


def _append_scalars(
    db: Connection,
    grant: AppendGrant,
    sent: dict[SeriesName, list[SentPoints]],
    states: dict[SeriesName, SeriesState],
) -> None:
    tails: dict[int, Points] = {}
    blocks: list[NewBlock] = []
    for name, parts in sent.items():
        points = newest_of_each_step(concatenate([part for part in parts if isinstance(part, Points)]))
        state = states[name]
        state.count_is_exact &= state.count == 0 or int(points.steps[0]) > state.last_step
        state.count += len(points)
        state.tail_points += len(points)
        _note_ends(state, points)
        # Open blocks are older than the tail. Behind a tail, many points too are a row of it.
        if len(points) >= limits.packed_points_min and not state.tail_rows:
            blocks += _open_blocks(state.series_id, points)
        else:
            tails[state.series_id] = points
            state.tail_rows += 1
    if tails:
        scalar_tail.append(db, grant, tails)
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


def _note_ends(state: SeriesState, points: Points) -> None:
    """Moves a series' first and last point; on the same step the greater wall time wins, then the later arrival."""
    first, first_wall_time = int(points.steps[0]), float(points.wall_times[0])
    last, last_wall_time = int(points.steps[-1]), float(points.wall_times[-1])
    if first < state.first_step or (first == state.first_step and first_wall_time >= state.first_wall_time):
        state.first_step, state.first_wall_time, state.first_value = first, first_wall_time, float(points.values[0])
    if last > state.last_step or (last == state.last_step and last_wall_time >= state.last_wall_time):
        state.last_step, state.last_wall_time, state.last_value = last, last_wall_time, float(points.values[-1])


def _upsert_tensors(
    db: Connection,
    grant: AppendGrant,
    sent: dict[SeriesName, list[SentPoints]],
    states: dict[SeriesName, SeriesState],
    ranks: Ranks,
) -> None:
    rows: list[TensorPoint] = []
    for name, parts in sent.items():
        columns = [part for part in parts if isinstance(part, TensorPoints)]
        values = [value for part in columns for value in part.tensors]
        kept = _keep_newest(states[name], columns)
        rows += [
            TensorPoint(states[name].series_id, rank, key, step, wall_time, values[index])
            for rank, key, step, wall_time, index in _places(kept, ranks)
        ]
    _note_new_counts(tensor_points.upsert(db, grant, rows), states)


def _upsert_blob_sequences(
    db: Connection,
    grant: AppendGrant,
    sent: dict[SeriesName, list[SentPoints]],
    states: dict[SeriesName, SeriesState],
    ranks: Ranks,
) -> None:
    rows: list[BlobPoint] = []
    for name, parts in sent.items():
        columns = [part for part in parts if isinstance(part, BlobSequencePoints)]
        sequences = [sequence for part in columns for sequence in part.sequences]
        state = states[name]
        state.max_length = max(state.max_length, *map(len, sequences))
        kept = _keep_newest(state, columns)
        rows += [
            BlobPoint(state.series_id, rank, key, step, wall_time, [blob.sha256 for blob in sequences[index]])
            for rank, key, step, wall_time, index in _places(kept, ranks)
        ]
    _note_new_counts(blob_points.upsert(db, grant, rows), states)


def _keep_newest(state: SeriesState, columns: Sequence[TensorPoints | BlobSequencePoints]) -> Points:
    """The newest point of each step, with its index among the columns' values as its value; notes the series' ends."""
    steps = np.concatenate([part.steps for part in columns])
    wall_times = np.concatenate([part.wall_times for part in columns])
    kept = newest_of_each_step(Points(steps, wall_times, np.arange(len(steps), dtype=np.float64)))
    _note_ends(state, kept)
    state.first_value = state.last_value = None
    return kept


def _places(kept: Points, ranks: Ranks) -> Iterator[tuple[int, int, int, float, int]]:
    """For each point its place in the order to sample by, its step and wall time, and the index that is its value."""
    rank, key = rank_and_key(kept.steps, ranks)
    columns = (rank, key, kept.steps, kept.wall_times, kept.values.astype(np.int64))
    return zip(*(column.tolist() for column in columns), strict=True)


def _note_new_counts(new: dict[int, int], states: dict[SeriesName, SeriesState]) -> None:
    by_id = {state.series_id: state for state in states.values()}
    for series_id, count in new.items():
        by_id[series_id].count += count


def apply_metadata(arrivals: dict[SeriesName, list[Arrival]], states: dict[SeriesName, SeriesState]) -> None:
    """Takes over newer metadata where the plugin is one whose newest metadata counts."""
    for name, parts in arrivals.items():
        state = states[name]
        if state.plugin != HPARAMS:
            continue
        for part in parts:
            metadata = part.series.metadata
            wall_time = float(part.series.points.wall_times.max())
            if metadata is not None and wall_time >= state.metadata_wall_time:
                state.summary_metadata, state.metadata_wall_time = metadata.serialized, wall_time


def is_due(state: SeriesState) -> bool:
    """Whether enough has come into a series since it was merged."""
    return state.tail_rows >= limits.tail_rows_max or state.tail_points >= limits.tail_points_max
