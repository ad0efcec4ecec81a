"""Commit a batch: atomically, exactly once, and the newest point of a step wins.

One transaction, in this order: find the segments that are new, create and lock series, then
`PointWriter.write`: insert points, move the upload cursors, and increment the experiment's version.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import Conflict, CursorConflict, RunDeleted, Unavailable
from tbservice.ingest import run_names, superseded
from tbservice.ingest.batch import Segment, iter_inline_blobs, iter_referenced_blobs
from tbservice.ingest.door import PointWriter
from tbservice.ingest.series_updates import SeriesUpdate, group_by_series
from tbservice.ingest.series_writer import Counts
from tbservice.objects.tables import blobs
from tbservice.series.tables import runs_tags, upload_streams
from tbservice.series.tables.upload_streams import CursorMove, LockedStream
from tbservice.types.grants import AppendGrant
from tbservice.types.series import Cursor

_SKIPPED_COUNT_MAX: Final = 2**63 - 1
"""The maximum of a stream's skip counts, which clients may set freely."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a batch: a cursor per segment, and points written.

    `new_segments` is the number of segments that were not repeats.
    """

    cursors: list[Cursor]
    counts: Counts
    new_segments: int = 0


def write_batch(
    writer: PointWriter, grant: AppendGrant, segments: Sequence[Segment]
) -> CommitResult:
    """Commit the segments that are new and skip repeats, in the caller's transaction.

    Inline blobs must have been stored (`blobs.store_inline`).

    Raises:
        CursorConflict: A segment leaves a gap, straddles its cursor, or continues a changed file.
        Conflict: `metadata_missing` if a series is new and has no metadata, `blob_missing` if a
            referenced blob was not uploaded, `try_again` if a run was deleted meanwhile,
            `experiment_full` if there are too many runs or files.
        RunDeleted: A run was deleted from the experiment, and would be created again.
        Unavailable: An inline blob was deleted by a sweep since it was stored.
        NotFound: The experiment was deleted.
        QuotaExceeded: The workspace has no room for what the segments add.
    """
    db = writer.db
    locked = _lock_streams(db, grant, segments)
    cursors = {digest: stream.cursor for digest, stream in locked.items()}
    new = _select_new_segments(segments, cursors)
    if not new:
        return CommitResult([_get_cursor(segment, cursors) for segment in segments], Counts())

    _check_references(db, grant, new)
    run_ids = _resolve_runs(db, grant, new, locked.values())
    _set_start_times(db, grant, new, run_ids)
    updates = writer.plan(grant, group_by_series(new, run_ids))
    moves = _plan_cursor_moves(new, cursors, run_ids, updates)
    restarted = {stream.run_id for stream in locked.values() if stream.is_restarted}
    restarted |= {move.run_id for move in moves if move.start == 0}
    # Before the write: an upsert of a tensor or blob sequence replaces the point that lost.
    kept = superseded.keep(db, grant, updates, moves, restarted)
    new_streams = sum(move.stream_digest not in cursors for move in moves)
    if new_streams:
        run_names.check_room(db, grant, new_streams)
    moved = writer.write(grant, updates, moves, kept)
    _check_all_moved(db, grant, moved, new)

    cursors |= {move.stream_digest: move.cursor for move in moves}
    return CommitResult(
        [_get_cursor(segment, cursors) for segment in segments],
        writer.stored[-1].counts,
        len(new),
    )


def _lock_streams(
    db: Connection, grant: AppendGrant, segments: Iterable[Segment]
) -> dict[bytes, LockedStream]:
    runs = {segment.stream_digest: segment.stream.run for segment in segments}
    return upload_streams.lock_streams(db, grant.experiment_id, runs)


def _get_cursor(segment: Segment, cursors: dict[bytes, Cursor]) -> Cursor:
    return cursors.get(segment.stream_digest) or Cursor(segment.stream, 0, 0)


def _select_new_segments(
    segments: Iterable[Segment], cursors: dict[bytes, Cursor]
) -> list[Segment]:
    """Return the segments to commit; each continues its stream's cursor or its previous segment."""
    new = []
    cursor_ends = {digest: (cursor.offset, cursor.checksum) for digest, cursor in cursors.items()}
    for segment in segments:
        offset, checksum = cursor_ends.get(segment.stream_digest, (0, 0))
        # Not `segment.start < offset`: a segment that straddles the cursor is no repeat, and would
        # lose its second part.
        if segment.end <= offset:
            _check_repeat(segment, offset, checksum)
            continue
        _check_start(segment, offset, checksum)
        cursor_ends[segment.stream_digest] = segment.end, segment.end_checksum
        new.append(segment)
    return new


def _check_repeat(segment: Segment, offset: int, checksum: int) -> None:
    # Only the checksum at the cursor is stored: a repeat that ends before it cannot be compared.
    if segment.end == offset and offset and segment.end_checksum != checksum:
        raise _make_replaced_error(segment, offset, checksum)


def _check_start(segment: Segment, offset: int, checksum: int) -> None:
    if segment.start != offset:
        detail = (
            f"the segment starts at byte {segment.start}, the stream's cursor is at byte {offset}: "
            "resume from there"
        )
        # With the cursor, so that the client can seek without asking for it.
        raise CursorConflict(detail, segment=segment.index, offset=offset, checksum=checksum)
    if segment.start and segment.start_checksum != checksum:
        raise _make_replaced_error(segment, offset, checksum)


def _make_replaced_error(segment: Segment, offset: int, checksum: int) -> CursorConflict:
    detail = (
        f"the first {offset} bytes of the file are not those that were committed: "
        "start a new generation at 0"
    )
    return CursorConflict(
        detail, segment=segment.index, offset=offset, checksum=checksum, code="stream_replaced"
    )


def _check_references(db: Connection, grant: AppendGrant, segments: Sequence[Segment]) -> None:
    """Keep the blobs of the segments, and raise Conflict for those that the grant may not use.

    Knowing the digest of another tenant's blob must not give access to it. Raises Unavailable if a
    blob of the batch itself was deleted since it was stored: the client sends the batch again.
    """
    inline = {blob.sha256 for blob in iter_inline_blobs(segments)}
    referenced = {(blob.sha256, blob.size) for blob in iter_referenced_blobs(segments)}
    named = {digest for digest, _ in referenced}
    if not inline and not named:
        return  # without blobs, as in most batches, a query less
    held = blobs.hold(db, grant.workspace_id, inline | named)
    usable = blobs.select_usable(db, grant, named)
    missing = sorted(
        {
            digest.hex()
            for digest, size in referenced
            if digest not in usable or digest not in held or held[digest].size != size
        }
    )
    if missing:
        raise Conflict(f"upload these blobs first: {', '.join(missing[:10])}", code="blob_missing")
    if not inline <= held.keys():
        raise Unavailable("a blob of the batch was deleted meanwhile: send the batch again")


def _set_start_times(
    db: Connection, grant: AppendGrant, segments: Iterable[Segment], run_ids: dict[str, int]
) -> None:
    times: defaultdict[int, list[float]] = defaultdict(list)
    for segment in segments:
        if segment.start == 0 and segment.run_start_time:
            times[run_ids[segment.stream.run]].append(segment.run_start_time)
    if times:
        first, last = list(map(min, times.values())), list(map(max, times.values()))
        runs_tags.set_start_times(db, grant.experiment_id, list(times), first, last)


def _resolve_runs(
    db: Connection, grant: AppendGrant, segments: Sequence[Segment], locked: Iterable[LockedStream]
) -> dict[str, int]:
    """Return the ids of the runs by name, creating new ones. Raises RunDeleted."""
    run_ids = {stream.cursor.stream.run: stream.run_id for stream in locked}
    others = dict.fromkeys(
        segment.stream.run for segment in segments if segment.stream.run not in run_ids
    )
    if not others:
        return run_ids
    try:
        return run_ids | run_names.resolve_runs(db, grant, others)
    except RunDeleted as error:
        error.segments = [segment.index for segment in segments if segment.stream.run in error.runs]
        raise


def _plan_cursor_moves(
    new: Sequence[Segment],
    cursors: dict[bytes, Cursor],
    run_ids: dict[str, int],
    updates: Iterable[SeriesUpdate],
) -> list[CursorMove]:
    """Return one move per stream, from its current offset to the end of its last segment."""
    streams: dict[bytes, list[Segment]] = {}
    for segment in new:
        streams.setdefault(segment.stream_digest, []).append(segment)
    misfits: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    for index, reason, count in chain.from_iterable(update.skipped for update in updates):
        misfits[index].append((reason, count))

    moves = []
    for digest, stream_segments in streams.items():
        cursor_before = cursors.get(digest)
        counts = defaultdict(int, cursor_before.skipped if cursor_before else {})
        for segment in stream_segments:
            for reason, count in [*segment.skipped.items(), *misfits[segment.index]]:
                counts[reason] = min(counts[reason] + count, _SKIPPED_COUNT_MAX)
        stream = stream_segments[-1].stream
        cursor = Cursor(
            stream, stream_segments[-1].end, stream_segments[-1].end_checksum, dict(counts)
        )
        first = stream_segments[0]
        moves.append(
            CursorMove(
                digest,
                cursor,
                run_ids[stream.run],
                first.start,
                (first.run_start_time or None) if first.start == 0 else None,
                _find_last_wall_time(stream_segments),
            )
        )
    return moves


def _find_last_wall_time(segments: Iterable[Segment]) -> float | None:
    """Return the greatest wall time of the points of these segments; None without any."""
    columns = [series.points.wall_times for segment in segments for series in segment.series]
    if not columns:
        return None
    # One call for all: a maximum per series would take some per cent of a batch of many series.
    return float(np.concatenate(columns).max(initial=-np.inf))


def _check_all_moved(
    db: Connection, grant: AppendGrant, moved: set[bytes], new: Sequence[Segment]
) -> None:
    """Raise CursorConflict if another uploader was first; Conflict if a run was deleted."""
    # Reversed, so that the first segment of each stream remains.
    firsts = {segment.stream_digest: segment for segment in reversed(new)}
    # Cursors are checked by the UPDATE, not locked before: most batches have no competitor, and a
    # lock would be one more wait.
    if moved == firsts.keys():
        return
    locked = _lock_streams(db, grant, new)
    cursors = {digest: stream.cursor for digest, stream in locked.items()}
    for digest, segment in firsts.items():
        if digest in moved:
            continue  # read with our own move of it, which the rollback will undo
        cursor = _get_cursor(segment, cursors)
        _check_start(segment, cursor.offset, cursor.checksum)
    detail = "the experiment changed during the request; send the batch again"
    raise Conflict(detail, code="try_again")
