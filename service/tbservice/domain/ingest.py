"""Committing a batch: whole, exactly once, the newest point of a step wins.

One transaction: find which segments are next, make what is new, lock the series in id order, insert the points, and as the
last statements move the cursors and the experiment's version: the rows that everybody wants are held for the shortest time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.batch import (
    BlobSequencePoints,
    Segment,
    SentMetadata,
    SentPoints,
    SentSeries,
    TensorPoints,
    referenced_blobs,
)
from tbservice.domain.newest import newest_of_each_step
from tbservice.domain.sampling import Ranks, rank_and_key
from tbservice.errors import Conflict, CursorConflict, NotFound
from tbservice.store import (
    blob_points,
    blobs,
    experiments,
    names,
    sample_slots,
    scalar_tail,
    tensor_points,
    time_series,
    upload_streams,
)
from tbservice.store.blob_points import BlobPoint
from tbservice.store.packing import Points, concatenate
from tbservice.store.tensor_points import TensorPoint
from tbservice.store.time_series import NewSeries, SeriesState
from tbservice.store.upload_streams import Advance
from tbservice.types import AppendGrant, Cursor, DataClass, Stream

HPARAMS = "hparams"
"""The one plugin whose whole content is in its metadata: there the newest wins, elsewhere the first."""

SeriesName = tuple[int, int]
"""Run id and tag id."""


@dataclass(slots=True)
class Outcome:
    """What a batch did: a cursor a segment, how many points are in, and the runs with a series due for a merge."""

    cursors: list[Cursor]
    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    due_run_ids: frozenset[int] = frozenset()
    touched_run_ids: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Arrival:
    """One segment's part of a series, with the segment it came in."""

    segment: Segment
    series: SentSeries


def write_batch(db: Connection, grant: AppendGrant, segments: Sequence[Segment]) -> Outcome:
    """Commits what is next and passes over what is a repeat; the caller's transaction makes it whole or nothing.

    Inline blobs must be kept already (`blobs.keep_inline`). Raises CursorConflict when a segment leaves a gap, straddles
    its cursor or continues a file that has changed; Conflict `metadata_missing` when a series is new and came without
    metadata, `blob_missing` when a referenced blob was never put; NotFound when the experiment is gone.
    """
    cursors = _current_cursors(db, grant, segments)
    fresh = _fresh_segments(segments, cursors)
    if not fresh:
        return Outcome([_cursor_of(segment, cursors) for segment in segments])
    _check_references(db, grant, fresh)
    run_ids = names.resolve_runs(db, grant, {segment.stream.run for segment in fresh})
    _note_start_times(db, grant, fresh, run_ids)
    arrivals = _arrivals(fresh, run_ids, _resolve_tags(db, grant, fresh))
    states = _lock_series(db, grant, arrivals)
    skipped = _take_out_misfits(arrivals, states)
    outcome = _insert_points(db, grant, arrivals, states)
    _apply_metadata(arrivals, states)
    time_series.update_states(db, grant.experiment_id, [states[name] for name in arrivals])
    advances = _advances(fresh, cursors, run_ids, skipped)
    _move_cursors(db, grant, advances, segments)
    cursors.update({upload_streams.stream_digest(move.cursor.stream): move.cursor for move in advances})
    outcome.cursors = [_cursor_of(segment, cursors) for segment in segments]
    outcome.due_run_ids = frozenset(states[name].run_id for name in arrivals if _is_due(states[name]))
    outcome.touched_run_ids = frozenset(run_ids.values())
    return outcome


def _current_cursors(db: Connection, grant: AppendGrant, segments: Iterable[Segment]) -> dict[bytes, Cursor]:
    digests = {upload_streams.stream_digest(segment.stream) for segment in segments}
    return upload_streams.get_cursors(db, grant.experiment_id, list(digests))


def _cursor_of(segment: Segment, cursors: dict[bytes, Cursor]) -> Cursor:
    return cursors.get(upload_streams.stream_digest(segment.stream)) or Cursor(segment.stream, 0, 0)


def _fresh_segments(segments: Iterable[Segment], cursors: dict[bytes, Cursor]) -> list[Segment]:
    """Those that are next; a stream may have several in a batch, each going on where the one before ends."""
    fresh = []
    places = {digest: (cursor.offset, cursor.checksum) for digest, cursor in cursors.items()}
    for segment in segments:
        digest = upload_streams.stream_digest(segment.stream)
        offset, checksum = places.get(digest, (0, 0))
        if segment.end <= offset and segment.end > 0:
            continue
        _check_place(segment, offset, checksum)
        places[digest] = segment.end, segment.end_checksum
        fresh.append(segment)
    return fresh


def _check_place(segment: Segment, offset: int, checksum: int) -> None:
    if segment.start != offset:
        detail = (
            f"the segment starts at byte {segment.start}, the stream's cursor is at byte {offset}: go on from there"
        )
        raise CursorConflict(detail, segment=segment.index, offset=offset, checksum=checksum)
    if segment.start and segment.start_checksum != checksum:
        detail = f"the file is not the one whose first {offset} bytes were committed: start a new generation at 0"
        raise CursorConflict(detail, segment=segment.index, offset=offset, checksum=checksum, code="stream_replaced")


def _check_references(db: Connection, grant: AppendGrant, segments: Sequence[Segment]) -> None:
    """A reference is good only where this workspace has put the bytes: a digest alone opens nobody's blob."""
    wanted = {blob.sha256: blob.size for blob in referenced_blobs(segments)}
    known = blobs.list_known(db, grant.workspace_id, wanted) if wanted else {}
    missing = [digest.hex() for digest, size in wanted.items() if known.get(digest) != size]
    if missing:
        raise Conflict(f"put these blobs first: {', '.join(missing[:10])}", code="blob_missing")


def _note_start_times(db: Connection, grant: AppendGrant, segments: Iterable[Segment], run_ids: dict[str, int]) -> None:
    times: dict[int, float] = {}
    for segment in segments:
        if segment.start == 0 and segment.run_start_time:
            run_id = run_ids[segment.stream.run]
            times[run_id] = min(segment.run_start_time, times.get(run_id, segment.run_start_time))
    if times:
        names.set_start_times(db, grant.experiment_id, list(times), list(times.values()))


def _resolve_tags(db: Connection, grant: AppendGrant, segments: Iterable[Segment]) -> dict[str, int]:
    tags = {series.tag for segment in segments for series in segment.series}
    return names.resolve_tags(db, grant, tags) if tags else {}


def _arrivals(
    segments: Iterable[Segment], run_ids: dict[str, int], tag_ids: dict[str, int]
) -> dict[SeriesName, list[_Arrival]]:
    arrivals: defaultdict[SeriesName, list[_Arrival]] = defaultdict(list)
    for segment in segments:
        for series in segment.series:
            arrivals[run_ids[segment.stream.run], tag_ids[series.tag]].append(_Arrival(segment, series))
    return arrivals


def _lock_series(
    db: Connection, grant: AppendGrant, arrivals: dict[SeriesName, list[_Arrival]]
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


def _new_series(name: SeriesName, parts: Sequence[_Arrival]) -> NewSeries:
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


def _take_out_misfits(
    arrivals: dict[SeriesName, list[_Arrival]], states: dict[SeriesName, SeriesState]
) -> dict[int, dict[str, int]]:
    """Removes what does not fit the series it names, and counts it by reason for the segment it came in."""
    skipped: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for name, parts in list(arrivals.items()):
        state = states[name]
        fitting = [part for part in parts if _fits(part.series, state)]
        for part in parts:
            if not _fits(part.series, state):
                reason = f"tag {part.series.tag[:200]!r} belongs to plugin {state.plugin!r} in this run already"
                skipped[part.segment.index][reason] += len(part.series.points.steps)
        if fitting:
            arrivals[name] = fitting
        else:
            del arrivals[name]
    return {index: dict(reasons) for index, reasons in skipped.items()}


def _fits(series: SentSeries, state: SeriesState) -> bool:
    is_same_plugin = series.metadata is None or series.metadata.plugin == state.plugin
    return is_same_plugin and series.data_class == state.data_class


def _insert_points(
    db: Connection,
    grant: AppendGrant,
    arrivals: dict[SeriesName, list[_Arrival]],
    states: dict[SeriesName, SeriesState],
) -> Outcome:
    by_class: defaultdict[int, dict[SeriesName, list[SentPoints]]] = defaultdict(dict)
    for name, parts in arrivals.items():
        by_class[states[name].data_class][name] = [part.series.points for part in parts]
    outcome = Outcome([])
    if scalars := by_class.get(DataClass.SCALAR):
        outcome.scalars = _count(scalars)
        _append_scalars(db, grant, scalars, states)
    ranks = sample_slots.get_ranks(db)
    if tensors := by_class.get(DataClass.TENSOR):
        outcome.tensors = _count(tensors)
        _upsert_tensors(db, grant, tensors, states, ranks)
    if sequences := by_class.get(DataClass.BLOB_SEQUENCE):
        outcome.blobs = sum(
            sum(map(len, part.sequences))
            for parts in sequences.values()
            for part in parts
            if isinstance(part, BlobSequencePoints)
        )
        _upsert_blob_sequences(db, grant, sequences, states, ranks)
    return outcome


def _count(points: dict[SeriesName, list[SentPoints]]) -> int:
    return sum(len(part.steps) for parts in points.values() for part in parts)


def _append_scalars(
    db: Connection,
    grant: AppendGrant,
    sent: dict[SeriesName, list[SentPoints]],
    states: dict[SeriesName, SeriesState],
) -> None:
    tails = {}
    for name, parts in sent.items():
        points = newest_of_each_step(concatenate([part for part in parts if isinstance(part, Points)]))
        state = states[name]
        state.count_is_exact &= state.count == 0 or int(points.steps[0]) > state.last_step
        state.count += len(points)
        state.tail_rows += 1
        state.tail_points += len(points)
        _note_ends(state, points)
        tails[state.series_id] = points
    scalar_tail.append(db, grant, tails)


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


def _apply_metadata(arrivals: dict[SeriesName, list[_Arrival]], states: dict[SeriesName, SeriesState]) -> None:
    for name, parts in arrivals.items():
        state = states[name]
        if state.plugin != HPARAMS:
            continue
        for part in parts:
            metadata: SentMetadata | None = part.series.metadata
            wall_time = float(part.series.points.wall_times.max())
            if metadata is not None and wall_time >= state.metadata_wall_time:
                state.summary_metadata, state.metadata_wall_time = metadata.serialized, wall_time


def _advances(
    fresh: Sequence[Segment],
    cursors: dict[bytes, Cursor],
    run_ids: dict[str, int],
    skipped: dict[int, dict[str, int]],
) -> list[Advance]:
    """One move a stream, from where its cursor was to the end of its last segment."""
    streams: dict[Stream, list[Segment]] = {}
    for segment in fresh:
        streams.setdefault(segment.stream, []).append(segment)
    advances = []
    for stream, parts in streams.items():
        before = cursors.get(upload_streams.stream_digest(stream))
        counts: defaultdict[str, int] = defaultdict(int, before.skipped if before else {})
        for part in parts:
            for reason, count in [*part.skipped.items(), *skipped.get(part.index, {}).items()]:
                counts[reason] += count
        cursor = Cursor(stream, parts[-1].end, parts[-1].end_checksum, dict(counts))
        advances.append(Advance(cursor, run_ids[stream.run], parts[0].start))
    return advances


def _move_cursors(db: Connection, grant: AppendGrant, advances: Sequence[Advance], segments: Sequence[Segment]) -> None:
    if not upload_streams.advance(db, grant, advances):
        cursors = _current_cursors(db, grant, segments)
        for segment in segments:  # another uploader was quicker: tell where it got to
            cursor = _cursor_of(segment, cursors)
            if cursor.offset > segment.start:
                _check_place(segment, cursor.offset, cursor.checksum)
        raise Conflict("the experiment changed meanwhile; send the batch again", code="try_again")
    if not experiments.bump_version(db, grant.experiment_id):
        raise NotFound("the experiment has been deleted")


def _is_due(state: SeriesState) -> bool:
    return state.tail_rows >= limits.tail_rows_max or state.tail_points >= limits.tail_points_max
