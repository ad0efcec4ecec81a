"""Sends what is in files to the server: a bounded number of batches at once, one of each run, new data before old."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import Final

from tbupload.errors import Conflict, Refused, ServerError
from tbupload.http.client import Client, ExperimentStreams
from tbupload.http.response_schema import unreadable_answer
from tbupload.logdir.tree import FileEntry, Folder
from tbupload.upload.batches import BATCH_BYTES, Batch, EncodedSegment
from tbupload.upload.file_cache import FileCache, TagSetInterner, fill_batch
from tbwire import wire_pb2

REQUESTS_IN_FLIGHT: Final = 3
"""Batches under way at once, each of other runs."""

BYTES_IN_FLIGHT: Final = 16 << 20
"""While batches of this many bytes are under way, no more are made."""

SEGMENTS_IN_FLIGHT: Final = 1_500
"""Nor while they have this many segments: each is a file that is open to be read on, and takes some kilobytes."""

BATCH_FILL_SECONDS_MAX: Final = 0.25
"""A batch is made in about this time, full or not: files that grow meanwhile are not to wait for it."""

SEGMENT_FAULT_STATUSES: Final = frozenset({400, 413, 422})
"""HTTP statuses that say something about a batch's content; other refusals end the upload."""

CONTENT_TOO_LARGE: Final = 413

WriteOutcome = tuple[wire_pb2.WriteResult, bool]


class Scheduler:
    """Files on their way to one experiment. Each is read until it has nothing more, and is then `finished`.

    One batch of a run is under way at a time, so that what the server sees first does not depend on chance. `counts`
    are of what was committed: points, blobs, `empty_values`, `bytes` of event files, and those of `repeated_steps`;
    `done_bytes` what is committed of the files that are there, by whomever. `detail` is told what only those who
    look closely want to know.
    """

    def __init__(
        self,
        client: Client,
        streams: ExperimentStreams,
        cache: FileCache,
        on_finished: Callable[[FileEntry], None],
        debug: Callable[[str], None],
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
        self._tag_sets = TagSetInterner()
        self._urgent: deque[Folder] = deque()
        self._waiting: deque[Folder] = deque()
        self._in_flight: dict[Future[WriteOutcome], Batch] = {}
        self._batch_bytes = BATCH_BYTES
        self._pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT, thread_name_prefix="send")

    @property
    def is_busy(self) -> bool:
        """Whether files wait to be sent, or are being sent."""
        return bool(self._in_flight or self._urgent or self._waiting)

    @property
    def is_in_flight(self) -> bool:
        """Whether there are answers to wait for."""
        return bool(self._in_flight)

    def can_submit(self) -> bool:
        """Whether there is something to send, and room for it under way."""
        if not (self._urgent or self._waiting) or len(self._in_flight) >= REQUESTS_IN_FLIGHT:
            return False
        batches = self._in_flight.values()
        is_large = sum(batch.size for batch in batches) >= BYTES_IN_FLIGHT
        return not is_large and sum(len(batch.segments) for batch in batches) < SEGMENTS_IN_FLIGHT

    def enqueue(self, entry: FileEntry, *, is_urgent: bool) -> None:
        """The file waits for its run's turn; runs with something `is_urgent` have theirs first."""
        folder = entry.folder
        if folder.pending is None:
            folder.pending = [entry]
        else:
            folder.pending.append(entry)
        if not folder.is_in_flight:
            self._queue(folder, self._urgent if is_urgent else self._waiting)

    def forget(self, entry: FileEntry) -> bool:
        """The file is gone; whether it had something that was still to be sent."""
        self.done_bytes -= entry.committed
        self._cache.forget(entry)
        is_in_flight = (
            entry.folder.is_in_flight
            and entry.upload is not None
            and entry.upload.has_more(entry.size)
        )
        return is_in_flight or entry in (entry.folder.pending or ())

    def submit(self) -> None:
        """Sends batches while there is something to send, and reads ahead in the files that have one under way."""
        end = time.monotonic() + BATCH_FILL_SECONDS_MAX
        while self.can_submit() and time.monotonic() < end:
            batch = self._next_batch()
            if batch.segments:
                self._in_flight[self._pool.submit(self._send, batch)] = batch
                self._prefetch(batch)

    def process_done(self, timeout_seconds: float) -> None:
        """Waits for the next answers and takes them in. Raises ServerError when one of them ends the upload."""
        for future in wait(
            self._in_flight, timeout=timeout_seconds, return_when=FIRST_COMPLETED
        ).done:
            batch = self._in_flight.pop(future)
            try:
                self._acknowledge(batch, *future.result())
            except Conflict as conflict:
                self._on_conflict(batch, conflict)
            except Refused as refusal:
                self._bisect_failure(batch, refusal)
            self._requeue(batch)

    def count_sent(self, folder: Folder, segment: EncodedSegment, sent: WriteOutcome) -> None:
        """Counts what was sent beside the event files: series and points of the folder's run, and no bytes."""
        self._note_tags(folder, segment.metadata)
        self._count_points([segment], *sent)

    def drain(self) -> None:
        """The upload has failed: takes in what was under way and still arrived, so that the counts are right."""
        for future, batch in self._in_flight.items():
            try:
                self._acknowledge(batch, *future.result())
            except (ServerError, CancelledError):
                continue

    def close(self) -> None:
        """Waits for the requests under way, and begins no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def update_committed(self, entry: FileEntry) -> None:
        """Takes over how far the file is known to be committed."""
        if entry.upload is not None and not entry.is_gone:
            self.done_bytes += entry.upload.committed - entry.committed
            # Most files are committed to their ends: one number for both.
            entry.committed = (
                entry.size if entry.upload.committed == entry.size else entry.upload.committed
            )

    def _queue(self, folder: Folder, queue: deque[Folder]) -> None:
        if folder.queue is None or folder.queue is self._waiting is not queue:
            folder.queue = queue
            queue.append(folder)

    def _next_batch(self) -> Batch:
        """The next batch; runs it has segments of come back when it has been settled, others with more wait on."""
        batch = Batch(self._limits.batch_bytes_max, self._batch_bytes)
        end = time.monotonic() + BATCH_FILL_SECONDS_MAX
        for queue in (self._urgent, self._waiting):
            while queue and batch.has_room() and time.monotonic() < end:
                folder = queue.popleft()
                if (
                    folder.queue is queue
                ):  # otherwise it has moved to the other since, or was served there
                    self._fill_from_run(folder, batch, end)
        return batch

    def _fill_from_run(self, folder: Folder, batch: Batch, end: float) -> None:
        queue, folder.queue = folder.queue, None
        count = len(batch.segments)
        waiting = (other.pending or () for other in queue or ())
        self._cache.prefetch(chain(folder.pending or (), chain.from_iterable(waiting)))
        fill_batch(batch, folder, self._cache, self._finish_file, lambda: time.monotonic() < end)
        folder.is_in_flight = len(batch.segments) > count
        if folder.pending and not folder.is_in_flight:
            folder.queue = queue
            assert queue is not None, "it was taken from a queue"  # noqa: S101 - for the type checker
            queue.appendleft(folder)
        elif not folder.pending:
            folder.pending = None

    def _prefetch(self, batch: Batch) -> None:
        for entry in batch.owners:
            if entry.upload.has_more(entry.size):
                entry.upload.prefetch()

    def _send(self, batch: Batch) -> WriteOutcome:
        for digest, content in batch.blobs().items():
            self._client.upload_blob(self._experiment_id, digest, content)
        return self._client.write_batch(self._experiment_id, batch.body())

    def _acknowledge(self, batch: Batch, result: wire_pb2.WriteResult, is_repeat: bool) -> None:
        if len(result.cursors) != len(batch.segments) or any(
            map(_is_behind, result.cursors, batch.segments)
        ):
            raise unreadable_answer("cursors: not those of what was sent")
        for segment, entry, cursor in zip(
            batch.segments, batch.owners, result.cursors, strict=True
        ):
            self.counts.update(entry.upload.count_repeated(segment))
            entry.upload.acknowledge(segment, cursor)
            self._note_tags(entry.folder, segment.metadata)
            self.counts["bytes"] += segment.end - segment.start
            self.counts["empty_values"] += segment.empty_values
        self._count_points(batch.segments, result, is_repeat)

    def _count_points(
        self, segments: Iterable[EncodedSegment], result: wire_pb2.WriteResult, is_repeat: bool
    ) -> None:
        if not is_repeat:
            self.counts.update(scalars=result.scalars, tensors=result.tensors, blobs=result.blobs)
            return
        for (
            segment
        ) in segments:  # the server counted them when it was asked first, and that answer was lost
            self.counts.update(segment.counts)

    def _note_tags(self, folder: Folder, tags: dict[str, bytes]) -> None:
        if not folder.tags.issuperset(tags):
            self.run_count += not folder.tags
            self.series_count -= len(folder.tags)
            folder.tags = self._tag_sets.union(folder.tags, tags)
            self.series_count += len(folder.tags)

    def _on_conflict(self, batch: Batch, conflict: Conflict) -> None:
        """The one segment (or each with blobs, when a blob has gone) goes back; the others are sent again."""
        if conflict.code != "blob_missing" and conflict.segment not in range(len(batch.segments)):
            raise conflict
        for index, (segment, entry) in enumerate(zip(batch.segments, batch.owners, strict=True)):
            if index == conflict.segment or (conflict.segment is None and segment.blobs):
                self._debug(f"{entry.path}: {conflict}")
                entry.upload.on_conflict(segment, conflict)
            else:
                entry.upload.requeue(segment, alone=entry.upload.is_sent_alone)

    def _bisect_failure(self, batch: Batch, refusal: Refused) -> None:
        """What was too large is made smaller; otherwise the segment at fault is found by sending each alone."""
        if refusal.status not in SEGMENT_FAULT_STATUSES:
            raise refusal
        is_alone = len(batch.segments) == 1
        is_too_large = refusal.status == CONTENT_TOO_LARGE
        if is_too_large and not is_alone:
            self._batch_bytes = min(self._batch_bytes, batch.body_bytes // 2)
        for segment, entry in zip(batch.segments, batch.owners, strict=True):
            if not is_alone:
                entry.upload.requeue(segment, alone=not is_too_large)
            elif not is_too_large or not entry.upload.split(segment, is_permanent=True):
                entry.upload.give_up(str(refusal))

    def _requeue(self, batch: Batch) -> None:
        """The batch's files are finished, or are the next to be sent."""
        for entry in batch.owners:
            self.update_committed(entry)
            if not entry.is_gone and entry.upload.has_more(entry.size):
                self.enqueue(entry, is_urgent=False)
            else:
                self._finish_file(entry)
        for folder in {id(entry.folder): entry.folder for entry in batch.owners}.values():
            folder.is_in_flight = False
            if folder.pending and folder.queue is None:
                # Before those that wait: what was read ahead is held in memory, and is not to be of ever more runs.
                folder.queue = self._waiting
                self._waiting.appendleft(folder)

    def _finish_file(self, entry: FileEntry) -> None:
        self.update_committed(entry)
        if not entry.is_gone:
            self._cache.release(entry)
            self._on_finished(entry)


def _is_behind(cursor: wire_pb2.Cursor, segment: EncodedSegment) -> bool:
    """Whether a server that says that it committed the segment does not have it: its stream is no further."""
    return cursor.stream != segment.stream or cursor.offset < segment.end
