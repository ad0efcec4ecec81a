"""Sends a logdir to one experiment: reads what is new, commits it batch by batch, follows the files or ends."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.errors import Conflict, Refused, ServerError
from tbupload.reading.filters import SeriesFilter
from tbupload.sending.batches import BATCH_BYTES, Batch, EncodedSegment
from tbupload.sending.client import Client, Streams
from tbupload.sending.cursors import CursorBook
from tbupload.sending.patience import Patience
from tbupload.sending.progress import Progress, State
from tbupload.sending.scan import Scan, scan_logdir
from tbupload.sending.source import Reading, Source
from tbupload.sending.summary import Summary
from tbwire import wire_pb2

REQUESTS_IN_FLIGHT: Final = 3
"""Batches under way at once, each of other runs."""

BYTES_IN_FLIGHT: Final = 16 << 20
"""While batches of this many bytes are under way, no more are made."""

FAULTS_OF_A_SEGMENT: Final = frozenset({400, 413, 422})
"""HTTP statuses that say something about a batch's content; other refusals end the upload."""

TOO_LARGE: Final = 413

Sent = tuple[wire_pb2.WriteResult, bool]


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What is uploaded, and whether its files are followed (looked at every `poll_seconds`) or read once."""

    logdir: Path
    series_filter: SeriesFilter
    is_one_shot: bool
    poll_seconds: float


class RunSources:
    """The event files of one run, in the order of their names, which is that of their making.

    One batch of a run is under way at a time, so that what the server sees first does not depend on chance.
    """

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self.tags: set[str] = set()
        self._unread: deque[Source] = deque()

    def begin_pass(self) -> None:
        """Each file is looked at once more, until it has nothing new."""
        self._unread = deque(source for _, source in sorted(self.sources.items()))

    @property
    def is_drained(self) -> bool:
        """Whether all files have been read to their ends in this pass."""
        return not self._unread

    def fill(self, batch: Batch) -> None:
        """Puts the next segments into the batch, as far as there is room: never two of one file."""
        while self._unread and batch.has_room():
            source = self._unread[0]
            segment = source.take()
            if segment is not None and not self._add(batch, source, segment):
                return
            if segment is not None and not source.is_at_end():
                return
            self._unread.popleft()

    def _add(self, batch: Batch, source: Source, segment: EncodedSegment) -> bool:
        """Whether the segment found a place; otherwise it goes back to its file, and the batch is closed."""
        if batch.segments and (source.travels_alone or not batch.fits(segment)):
            source.send_back(segment, alone=source.travels_alone)
            batch.is_closed = True
            return False
        batch.add(segment, (self, source))
        batch.is_closed = source.travels_alone
        return True


class Upload:
    """One upload into one experiment; its `summary` is right at any time, also after an error."""

    def __init__(
        self, client: Client, streams: Streams, options: UploadOptions, progress: Progress, patience: Patience
    ) -> None:
        self._client = client
        self._experiment_id = streams.experiment_id
        self._options = options
        self._progress = progress
        self._patience = patience
        self._cursors = CursorBook(options.series_filter.digest(), streams.cursors)
        self._reading = Reading(options.series_filter, streams.limits, is_final=options.is_one_shot, say=progress.warn)
        self._runs: dict[str, RunSources] = {}
        self._scan = Scan()
        self._counts: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._batch_bytes = BATCH_BYTES
        self._pool = ThreadPoolExecutor(REQUESTS_IN_FLIGHT, thread_name_prefix="send")

    def run(self) -> Summary:
        """Sends everything, and what is added to it until an end is asked for; then what is there at that moment.

        Raises ServerError when the server is gone or refuses; what it committed until then stays committed.
        """
        try:
            while True:
                is_last_pass = self._options.is_one_shot or self._patience.is_stopping
                self._look()
                self._send_what_is_there()
                if is_last_pass:
                    return self.summary()
                self._patience.sleep(self._options.poll_seconds)
        finally:
            self._patience.abandon()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def summary(self) -> Summary:
        """What was committed until now, and what is missing."""
        sources = list(self._sources())
        troubles = [source.trouble for source in sources if source.trouble is not None]
        skipped = self._cursors.skipped() + Counter(trouble.kind for trouble in troubles)
        if self._scan.problems:
            skipped["path that could not be used"] = len(self._scan.problems)
        problems = [*self._scan.problems.values(), *(trouble.explanation for trouble in troubles)]
        state = self._state()
        return Summary(
            scalars=self._counts["scalars"],
            tensors=self._counts["tensors"],
            blobs=self._counts["blobs"],
            bytes=self._counts["bytes"],
            runs=state.runs,
            series=state.series,
            skipped=skipped,
            problems=problems,
            notes=[note for source in sources if (note := source.cut_record())],
        )

    def _look(self) -> None:
        """Finds new runs and files, and forgets those that are gone."""
        known = {source.path: source for source in self._sources()}
        limits = self._reading.limits
        self._scan = scan_logdir(self._options.logdir, self._options.series_filter, limits.name_chars_max)
        for run in self._runs.values():
            run.sources = {}
        for found in self._scan.files:
            run = self._runs.setdefault(found.run, RunSources())
            run.sources[found.path.name] = known.get(found.path) or Source(found, self._reading, self._cursors)
        if not self._scan.files:
            self._warn_once([f"{self._options.logdir}: no event files there yet"])
        self._warn_once(self._scan.problems.values())

    def _send_what_is_there(self) -> None:
        """One pass over all files, each until it has nothing new."""
        waiting = deque(self._runs.values())
        for run in waiting:
            run.begin_pass()
        flying: dict[Future[Sent], Batch] = {}
        try:
            self._launch(waiting, flying)
            while flying:
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    waiting.extend(self._settle(flying.pop(future), future))
                self._progress.show(self._state())
                self._launch(waiting, flying)
        except ServerError:
            self._land(flying)
            raise
        self._warn_once(source.trouble.explanation for source in self._sources() if source.trouble is not None)

    def _launch(self, waiting: deque[RunSources], flying: dict[Future[Sent], Batch]) -> None:
        """Sends batches while there is something to send, and reads ahead in the files that have one under way."""
        while waiting and len(flying) < REQUESTS_IN_FLIGHT and _size_of(flying) < BYTES_IN_FLIGHT:
            batch = self._gather(waiting)
            if batch.segments:
                flying[self._pool.submit(self._send, batch)] = batch
                for _, source in batch.owners:
                    source.peek()

    def _gather(self, waiting: deque[RunSources]) -> Batch:
        """The next batch; runs it has segments of come back when it has been settled, drained ones not in this pass."""
        batch = Batch(self._reading.limits.batch_bytes_max, self._batch_bytes)
        while waiting and batch.has_room():
            run = waiting.popleft()
            count = len(batch.segments)
            run.fill(batch)
            if len(batch.segments) == count and not run.is_drained:
                waiting.appendleft(run)
        return batch

    def _send(self, batch: Batch) -> Sent:
        for digest, content in batch.blobs().items():
            self._client.put_blob(self._experiment_id, digest, content)
        return self._client.write_batch(self._experiment_id, batch.body())

    def _settle(self, batch: Batch, future: Future[Sent]) -> list[RunSources]:
        """Takes in how a batch ended; answers the runs that may have more to send. Raises what ends the upload."""
        try:
            self._acknowledge(batch, *future.result())
        except Conflict as conflict:
            self._resolve(batch, conflict)
        except Refused as refusal:
            self._isolate(batch, refusal)
        runs = {id(run): run for run, _ in batch.owners}.values()
        return [run for run in runs if not run.is_drained]

    def _acknowledge(self, batch: Batch, result: wire_pb2.WriteResult, is_repeat: bool) -> None:
        if len(result.cursors) != len(batch.segments):
            raise Refused("the answer is not one of a tbhub server: check the server's address", status=200)
        for segment, (run, source), cursor in zip(batch.segments, batch.owners, result.cursors, strict=True):
            source.acknowledge(segment, cursor)
            run.tags.update(segment.metadata)
            self._counts["bytes"] += segment.end - segment.start
            if is_repeat:  # the server counted them when it was asked first, and that answer was lost
                self._counts.update(segment.counts)
        if not is_repeat:
            self._counts.update(scalars=result.scalars, tensors=result.tensors, blobs=result.blobs)

    def _resolve(self, batch: Batch, conflict: Conflict) -> None:
        """The one segment (or each with blobs, when a blob has gone) goes back; the others are sent again."""
        if conflict.code != "blob_missing" and conflict.segment not in range(len(batch.segments)):
            raise conflict
        for index, (segment, (run, source)) in enumerate(zip(batch.segments, batch.owners, strict=True)):
            if index == conflict.segment or (conflict.segment is None and segment.blobs):
                self._progress.detail(f"{source.path}: {conflict}")
                source.resolve(segment, conflict)
            else:
                source.send_back(segment, alone=source.travels_alone)
            run.begin_pass()

    def _isolate(self, batch: Batch, refusal: Refused) -> None:
        """What was too large is made smaller; otherwise the segment at fault is found by sending each alone."""
        if refusal.status not in FAULTS_OF_A_SEGMENT:
            raise refusal
        is_alone = len(batch.segments) == 1
        is_too_large = refusal.status == TOO_LARGE
        if is_too_large and not is_alone:
            self._batch_bytes = min(self._batch_bytes, batch.body_bytes // 2)
        for segment, (run, source) in zip(batch.segments, batch.owners, strict=True):
            if not is_alone:
                source.send_back(segment, alone=not is_too_large)
            elif not is_too_large or not source.narrow(segment, for_good=True):
                source.give_up(str(refusal))
            run.begin_pass()

    def _land(self, flying: dict[Future[Sent], Batch]) -> None:
        """The upload has failed: takes in what was under way and still arrived, so that the summary is right."""
        self._patience.abandon()
        for future, batch in flying.items():
            try:
                self._acknowledge(batch, *future.result())
            except (ServerError, CancelledError):
                continue

    def _sources(self) -> Iterable[Source]:
        return (source for run in self._runs.values() for source in run.sources.values())

    def _state(self) -> State:
        return State(
            done_bytes=sum(source.committed for source in self._sources()),
            total_bytes=self._scan.bytes,
            scalars=self._counts["scalars"],
            runs=sum(1 for run in self._runs.values() if run.tags),
            series=sum(len(run.tags) for run in self._runs.values()),
        )

    def _warn_once(self, messages: Iterable[str]) -> None:
        for message in messages:
            if message not in self._warned:
                self._warned.add(message)
                self._progress.warn(message)


def _size_of(flying: dict[Future[Sent], Batch]) -> int:
    return sum(batch.size for batch in flying.values())
