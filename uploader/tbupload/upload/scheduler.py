"""The scheduler of an upload: a bounded number of batches in flight, new data before old.

A run has one batch in flight at a time. Which of two series a tag belongs to, and which of two
points of a step is stored, depends on the order of arrival: it should not depend on chance.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Any, Final

from tbupload.errors import Conflict, Refused, ServerError
from tbupload.http.client import Client, ExperimentStreams
from tbupload.http.response_schema import unreadable_answer
from tbupload.logdir.entries import FileEntry, Folder
from tbupload.upload.batches import BATCH_BYTES, Batch, fill_batch
from tbupload.upload.file_cache import FileCache, TagSetInterner
from tbupload.upload.readers.pool import ReaderPool
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.segments import EncodedSegment
from tbwire import wire_pb2

REQUESTS_IN_FLIGHT: Final = 3
"""Batches in flight at once, each of other runs."""

BYTES_IN_FLIGHT: Final = 16 << 20
"""Size of the batches in flight from which no more are made."""

SEGMENTS_IN_FLIGHT: Final = 1_500
"""Segments in flight from which no more batches are made.

Each has a file with a reader, which takes some kilobytes.
"""

BATCH_FILL_SECONDS_MAX: Final = 0.25
"""Time to fill a batch, about; then it is sent as it is, for files that grow in the meantime."""

SEGMENT_FAULT_STATUSES: Final = frozenset({400, 413, 422})
"""HTTP statuses of a batch the server cannot accept; other refusals end the upload."""

CONTENT_TOO_LARGE: Final = 413  # RFC 9110, section 15.5.14

RUN_DELETED: Final = "run_deleted"
"""Code of the 409 for runs that were deleted from the experiment."""

WriteOutcome = tuple[wire_pb2.WriteResult, bool]
"""The server's answer to a batch, and whether the request was retried."""


class Scheduler:
    """Sends files to one experiment, each until everything in it is committed.

    `counts` has what this upload committed: scalars, tensors, blobs, `empty_values`, `bytes` of
    event files, and the counts of `repeated_steps`. `done_bytes` is what is committed of the files
    that exist, by any upload; `run_count` and `series_count` are those this upload sent.

    Args:
        client: The server.
        streams: The experiment, and the server's limits.
        cache: The uploads of the files.
        on_finished: Called with each file that has nothing more to send for now.
        debug: Called with sentences for `--verbose`.
        guard: Compares the beginnings of files with what is stored.
    """

    def __init__(
        self,
        client: Client,
        streams: ExperimentStreams,
        cache: FileCache,
        on_finished: Callable[[FileEntry], None],
        debug: Callable[[str], None],
        guard: RetrainingGuard | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.done_bytes = 0
        self.run_count = self.series_count = 0
        self._client = client
        self._experiment_id = streams.experiment_id
        self._limits = streams.limits
        self._cache = cache
        self._on_finished = on_finished
        self._debug = debug
        self._guard = guard
        self._tag_sets = TagSetInterner()
        self._urgent: deque[Folder] = deque()
        self._waiting: deque[Folder] = deque()
        self._in_flight: dict[Future[WriteOutcome], Batch] = {}
        self._batch_bytes = BATCH_BYTES
        self._readers: ReaderPool | None = None
        self._is_stalled = False
        self._pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT, thread_name_prefix="send")

    @property
    def is_busy(self) -> bool:
        """Return whether files are waiting to be sent, or are being sent."""
        return bool(self._in_flight or self._urgent or self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Return whether there are answers, or readers, to wait for."""
        return bool(self._in_flight) or self._is_stalled

    def can_submit(self) -> bool:
        """Return whether there is something to send, and room for it in flight."""
        if not (self._urgent or self._waiting) or len(self._in_flight) >= REQUESTS_IN_FLIGHT:
            return False
        if self._is_stalled:
            return False
        batches = self._in_flight.values()
        is_large = sum(batch.size for batch in batches) >= BYTES_IN_FLIGHT
        return not is_large and sum(len(batch.segments) for batch in batches) < SEGMENTS_IN_FLIGHT

    def read_ahead(self, readers: ReaderPool | None) -> None:
        """Have these readers read what is waiting from now on; without readers, read it here."""
        if self._readers is not None:
            self._readers.close()
        self._readers = readers
        self._is_stalled = False

    def enqueue(self, entry: FileEntry, *, is_urgent: bool) -> None:
        """Add a file to those to be sent; runs with an urgent file come before the others."""
        folder = entry.folder
        if folder.pending is None:
            folder.pending = [entry]
        else:
            folder.pending.append(entry)
        if not folder.is_in_flight:
            self._queue(folder, self._urgent if is_urgent else self._waiting)

    def forget(self, entry: FileEntry) -> bool:
        """Remove a deleted file; return whether something in it was still to be sent."""
        self.done_bytes -= entry.committed
        upload = self._cache.find(entry)
        is_in_flight = (
            entry.folder.is_in_flight and upload is not None and upload.has_more(entry.size)
        )
        self._cache.forget(entry)
        return is_in_flight or entry in (entry.folder.pending or ())

    def submit(self) -> None:
        """Send batches for a short time while `can_submit`, and prefetch in their files.

        With readers, only files that none of them reads are read here.

        Raises:
            RunRetrained: A file belongs to another training than what is stored of its run.
        """
        end = time.monotonic() + BATCH_FILL_SECONDS_MAX
        while self.can_submit() and time.monotonic() < end:
            if self._holds_back():
                self._is_stalled = True
                break
            batch = self._next_batch()
            if batch.segments:
                # Encoded here and sent in a thread: the encoder holds the interpreter's lock, a
                # request waits.
                self._in_flight[self._pool.submit(self._send, batch)] = batch
                self._prefetch(batch)

    def process_done(self, timeout_seconds: float) -> None:
        """Wait for the next answers and process them; return as well when a reader has read more.

        Raises:
            ServerError: An answer ends the upload.
        """
        futures: set[Future[Any]] = set(self._in_flight)
        if self._readers is not None and self._is_stalled:
            futures.add(self._readers.arrival)
        wait(futures, timeout=timeout_seconds, return_when=FIRST_COMPLETED)
        self._receive_from_readers()

        for future in [future for future in self._in_flight if future.done()]:
            self._is_stalled = False
            batch = self._in_flight.pop(future)
            try:
                self._acknowledge(batch, *future.result())
            # Before Refused, of which it is a kind.
            except Conflict as conflict:
                self._on_conflict(batch, conflict)
            except Refused as refusal:
                self._bisect_failure(batch, refusal)
            self._requeue(batch)

    def count_sent(self, folder: Folder, segment: EncodedSegment, sent: WriteOutcome) -> None:
        """Count the series and points of a segment that is not of an event file."""
        self._note_tags(folder, segment.metadata)
        self._count_points([segment], *sent)

    def drain(self) -> None:
        """Wait for the batches in flight after the upload has failed, and count those committed."""
        # The upload has failed already: errors of these say nothing new.
        for future, batch in self._in_flight.items():
            try:
                self._acknowledge(batch, *future.result())
            except (ServerError, CancelledError):
                continue

    def close(self) -> None:
        """Wait for the requests in flight, and cancel those not started."""
        # Waits: a request that is cut off may have been committed, and would not be counted.
        self._pool.shutdown(wait=True, cancel_futures=True)
        self.read_ahead(None)

    def update_committed(self, entry: FileEntry) -> None:
        """Update the entry's committed bytes from its upload's."""
        upload = self._cache.find(entry)
        if upload is not None and not entry.is_gone:
            committed = upload.committed
            # May be negative: a file that was replaced begins again.
            self.done_bytes += committed - entry.committed
            # Share the number object with `size`: most files are committed to their end, and
            # hundreds of thousands of copies take megabytes.
            entry.committed = entry.size if committed == entry.size else committed

    def _queue(self, folder: Folder, queue: deque[Folder]) -> None:
        # A folder moves from waiting to urgent, never back: its new points are still new.
        if folder.queue is None or folder.queue is self._waiting is not queue:
            folder.queue = queue
            queue.append(folder)

    def _next_batch(self) -> Batch:
        """Return the next batch, which may be empty.

        Its runs leave their queue until the batch has been answered.
        """
        batch = Batch(self._limits.batch_bytes_max, self._batch_bytes)
        end = time.monotonic() + BATCH_FILL_SECONDS_MAX
        # Points of a training in progress before those of old files: somebody is looking at them.
        for queue in (self._urgent, self._waiting):
            waiting_for_readers: list[Folder] = []
            while queue and batch.has_room() and time.monotonic() < end:
                folder = queue.popleft()
                # A folder that became urgent is left in the other queue as well, to be ignored.
                if folder.queue is not queue:
                    continue
                if not self._waits_for_reader(folder):
                    self._fill_from_run(folder, batch, end)
                    continue
                waiting_for_readers.append(folder)
                if not self._is_read_ahead(folder):
                    break  # and so do all that follow
            queue.extendleft(reversed(waiting_for_readers))
            self._is_stalled = self._is_stalled or bool(waiting_for_readers)
        self._is_stalled = self._is_stalled and not batch.segments
        return batch

    def _holds_back(self) -> bool:
        """Return whether to wait until the readers have read a full batch: it costs less."""
        self._give_to_readers()
        if self._readers is None or self._urgent or not self._in_flight:
            return False
        return self._readers.ready_bytes < self._batch_bytes

    def _give_to_readers(self) -> None:
        """Give waiting files to the readers that have room."""
        self._receive_from_readers()
        if self._readers is not None and self._readers.has_room:
            waiting = (folder.pending or () for folder in self._waiting)
            self._cache.read_ahead(
                chain.from_iterable(waiting), self._readers, self._may_read_ahead
            )

    def _receive_from_readers(self) -> None:
        if self._readers is not None and self._readers.receive():
            self._is_stalled = False
            if not self._readers.is_alive:
                self.read_ahead(None)

    def _may_read_ahead(self, entry: FileEntry) -> bool:
        return self._guard is None or not self._guard.compares(entry, entry.committed)

    def _waits_for_reader(self, folder: Folder) -> bool:
        """Return whether a reader reads the run's next segment, or is to read its files."""
        pending = [entry for entry in folder.pending or () if not entry.is_gone]
        if self._readers is None or not pending:
            return False
        upload = self._cache.find(pending[0])
        if self._is_read_ahead(folder):
            return upload is not None and upload.is_waiting
        # With room for them, the readers were not given these files on purpose.
        if folder.queue is self._urgent or self._readers.has_room:
            return False
        return self._may_read_ahead(pending[0]) and (upload is None or upload.prepare_read_ahead())

    def _is_read_ahead(self, folder: Folder) -> bool:
        uploads = map(self._cache.find, folder.pending or ())
        return any(upload is not None and upload.is_read_ahead for upload in uploads)

    def _fill_from_run(self, folder: Folder, batch: Batch, end: float) -> None:
        queue, folder.queue = folder.queue, None
        count = len(batch.segments)

        waiting = (other.pending or () for other in queue or ())
        self._cache.prefetch(chain(folder.pending or (), chain.from_iterable(waiting)))
        fill_batch(
            batch,
            folder,
            self._cache,
            self._finish_file,
            lambda: time.monotonic() < end,
            self._guard,
        )
        folder.is_in_flight = len(batch.segments) > count
        if folder.pending and not folder.is_in_flight:
            folder.queue = queue
            assert queue is not None, "the folder was in a queue"  # noqa: S101 - for the type checker
            queue.appendleft(folder)
        elif not folder.pending:
            folder.pending = None

    def _prefetch(self, batch: Batch) -> None:
        for entry, upload in batch.files:
            if upload.has_more(entry.size):
                upload.prefetch()

    def _send(self, batch: Batch) -> WriteOutcome:
        # Before the batch, which the server refuses while a blob is missing.
        for digest, content in batch.blobs().items():
            self._client.upload_blob(self._experiment_id, digest, content)
        return self._client.write_batch(self._experiment_id, batch.body())

    def _acknowledge(self, batch: Batch, result: wire_pb2.WriteResult, was_retried: bool) -> None:
        # An answer that does not cover what was sent would let data be taken for stored.
        if len(result.cursors) != len(batch.segments) or any(
            map(_is_behind, result.cursors, batch.segments)
        ):
            raise unreadable_answer("cursors: not those of the batch")

        for segment, (entry, upload), cursor in zip(batch.segments, batch.files, result.cursors):
            self.counts.update(upload.count_repeated(segment))
            upload.acknowledge(segment, cursor)
            self._note_tags(entry.folder, segment.metadata)
            self.counts["bytes"] += segment.end - segment.start
            self.counts["empty_values"] += segment.empty_values

        self._count_points(batch.segments, result, was_retried)

    def _count_points(
        self, segments: Iterable[EncodedSegment], result: wire_pb2.WriteResult, was_retried: bool
    ) -> None:
        if not was_retried:
            self.counts.update(scalars=result.scalars, tensors=result.tensors, blobs=result.blobs)
            return
        # The server committed the batch at the first request and the answer was lost; it counts
        # nothing for the repeated one.
        for segment in segments:
            self.counts.update(segment.counts)

    def _note_tags(self, folder: Folder, tags: dict[str, bytes]) -> None:
        if not folder.tags.issuperset(tags):
            self.run_count += not folder.tags
            self.series_count -= len(folder.tags)
            folder.tags = self._tag_sets.intern_union(folder.tags, tags)
            self.series_count += len(folder.tags)

    def _on_conflict(self, batch: Batch, conflict: Conflict) -> None:
        """Handle a 409: its segment resumes from the server's cursor, the others are sent again.

        If a blob is missing and the answer names no segment, that is each segment with blobs. Files
        of runs that were deleted on the server are given up.
        """
        deleted = set(conflict.segments) if conflict.code == RUN_DELETED else set()
        if conflict.code != "blob_missing" and conflict.segment not in range(len(batch.segments)):
            raise conflict

        for index, (segment, (entry, upload)) in enumerate(zip(batch.segments, batch.files)):
            if index in deleted:
                upload.on_run_deleted()
            elif index == conflict.segment or (conflict.segment is None and segment.blobs):
                self._debug(f"{entry.path}: {conflict}")
                upload.on_conflict(segment, conflict)
            else:
                upload.requeue(segment, alone=upload.is_sent_alone)

    def _bisect_failure(self, batch: Batch, refusal: Refused) -> None:
        """Handle a refused batch: split what is too large, or find the segment at fault.

        The segments of a batch that was refused for its content are sent again one by one; a
        segment refused alone ends its file's upload, unless it can be split.
        """
        if refusal.status not in SEGMENT_FAULT_STATUSES:
            raise refusal
        is_alone = len(batch.segments) == 1
        is_too_large = refusal.status == CONTENT_TOO_LARGE
        if is_too_large and not is_alone:
            # For all later batches too: a proxy's limit stays, and every retry would cost a
            # request.
            self._batch_bytes = min(self._batch_bytes, batch.body_bytes // 2)

        for segment, (_, upload) in zip(batch.segments, batch.files):
            # Too large together: smaller batches will do. Refused for content: one by one, to find
            # which.
            if not is_alone:
                upload.requeue(segment, alone=not is_too_large)
            elif not is_too_large or not upload.split(segment, is_permanent=True):
                upload.give_up(str(refusal))

    def _requeue(self, batch: Batch) -> None:
        """Enqueue the files of an answered batch that have more to send; finish the others."""
        for entry, upload in batch.files:
            self.update_committed(entry)
            if not entry.is_gone and upload.has_more(entry.size):
                self.enqueue(entry, is_urgent=False)
            else:
                self._finish_file(entry)

        for folder in {id(entry.folder): entry.folder for entry, _ in batch.files}.values():
            folder.is_in_flight = False
            if folder.pending and folder.queue is None:
                # Ahead of the others: its files have prefetched chunks, and memory is bounded only
                # if these are sent before more runs are begun.
                folder.queue = self._waiting
                self._waiting.appendleft(folder)

    def _finish_file(self, entry: FileEntry) -> None:
        self.update_committed(entry)
        if not entry.is_gone:
            self._cache.release(entry)
            self._on_finished(entry)


def _is_behind(cursor: wire_pb2.Cursor, segment: EncodedSegment) -> bool:
    """Return whether a cursor, sent as the answer to a segment, does not cover it."""
    return cursor.stream != segment.stream or cursor.offset < segment.end
