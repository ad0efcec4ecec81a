"""An upload of a log directory to one experiment, which reads it once or follows it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tbupload.console.progress import ConsoleProgress, ProgressState
from tbupload.errors import RunRetrained, ServerError, Unreachable
from tbupload.events.filters import SeriesFilter
from tbupload.http.cancellation import StopToken
from tbupload.http.client import Client, ExperimentStreams
from tbupload.logdir.entries import FileEntry
from tbupload.logdir.tree import LogdirTree, printable_path
from tbupload.logdir.watcher import LogdirWatcher
from tbupload.remote_files import is_remote
from tbupload.upload.backlog import Backlog
from tbupload.upload.file_cache import FileCache
from tbupload.upload.file_errors import CONFIRM_SECONDS
from tbupload.upload.file_upload import REREAD_SECONDS_MIN, FileUpload
from tbupload.upload.filter_check import EVERYTHING, FilterMonitor
from tbupload.upload.follow_control import FollowControl
from tbupload.upload.plugins.hparams_file import NO_HPARAMS, HparamsFile
from tbupload.upload.plugins.hparams_upload import HparamsUpload
from tbupload.upload.plugins.projector import ProjectorUpload
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.restart_report import RestartReport
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.scheduler import Scheduler
from tbupload.upload.summary import Summary, repeated_counts

URGENT_BYTES_MAX: Final = 1 << 20
"""Growth of a file up to which it is urgent: sent before files read from their start."""

PAUSE_SECONDS_MAX: Final = 1.0
"""Longest wait without a progress report, and without a check whether to stop."""

LOOKS_MAX: Final = 5
"""Looks at the files when an upload is stopped, at most, if each finds that files have changed."""

REPORTED_FAILURES_MIN: Final = 2
"""Failures in a row after which a directory that cannot be listed is reported."""


@dataclass(frozen=True)
class UploadOptions:
    """Options of an upload, and whether its files are followed or read once.

    `poll_seconds` is the period of checking directories, and the longest one of checking files;
    growing files are checked more often. `hparams` are set for runs as soon as they are stored.
    `control` asks for looks at the files, and ends an upload that follows them. `readers` is the
    number of processes, or threads, that read a backlog; None to choose it, 0 for none. `run_names`
    has the runs of directories whose run has another name, by directory.
    """

    logdir: Path
    series_filter: SeriesFilter
    is_one_shot: bool
    poll_seconds: float
    hparams: HparamsFile = NO_HPARAMS
    control: FollowControl | None = None
    readers: int | None = 0
    run_names: Mapping[str, str] = field(default_factory=dict)


class Upload:
    """An upload to one experiment; `summary` may be called at any time, also after an error.

    Args:
        client: The server.
        streams: The experiment, and the server's limits.
        guard: Its upload cursors, which compares the beginnings of files with what is stored.
        options: Files and options of the upload.
        progress: Where to report progress and problems.
        stop_token: Ends the upload. It is the one of the client's retry policy, so that requests
            end as well.
    """

    def __init__(
        self,
        client: Client,
        streams: ExperimentStreams,
        guard: RetrainingGuard,
        options: UploadOptions,
        progress: ConsoleProgress,
        stop_token: StopToken,
    ) -> None:
        self._options = options
        self._progress = progress
        self._stop_token = stop_token
        self._cursors = guard.cursors
        self._guard = guard
        read_options = ReadOptions(
            options.series_filter, streams.limits, is_final=options.is_one_shot, warn=progress.warn
        )
        self._tree = LogdirTree(
            options.logdir,
            options.series_filter,
            streams.limits.name_chars_max,
            options.run_names,
        )
        self._cache = FileCache(read_options, self._cursors)
        self._watcher = LogdirWatcher(self._tree, options.poll_seconds, self._cache)
        self._scheduler = Scheduler(client, streams, self._cache, self._park, progress.debug, guard)
        self._backlog = Backlog(
            options.readers,
            is_remote(str(options.logdir)),
            read_options,
            self._cursors,
            self._scheduler,
            progress.debug,
        )
        self._projector = ProjectorUpload(
            client,
            streams.experiment_id,
            options.logdir,
            (options.series_filter, streams.limits, self._cursors),
            (self._scheduler.count_sent, progress.report_problem),
        )
        self._hparams = HparamsUpload(
            client,
            streams.experiment_id,
            options.hparams,
            options.series_filter,
            progress.report_problem,
        )
        self._filters = FilterMonitor(
            options.logdir,
            options.series_filter,
            streams.limits,
            options.poll_seconds,
            progress.report_problem,
        )
        self._restarts = RestartReport(client, streams.experiment_id, self._cursors, progress.warn)
        self._files_to_recheck: dict[FileEntry, None] = {}
        self._deleted_files: dict[str, FileEntry] = {}

    def run(self) -> Summary:
        """Upload everything; without `is_one_shot`, follow the files until told to end.

        That is by the stop token or by the control. After that, the files are looked at until
        nothing in them has changed, at most LOOKS_MAX times. Segments committed before an error
        stay committed.

        Raises:
            ServerError: The server refuses the upload, or cannot be reached.
            Unreachable: As well when the deadline for stopping has passed.
            RunRetrained: A run was trained again; the stop token may be used for another upload.
        """
        try:
            self._restarts.begin()
            while not (self._options.is_one_shot or self._stop_token.is_stopping):
                self._enqueue_changes(*self._watcher.poll())
                self._report_problems()
                self._send_pending()
                self._projector.poll(self._tree.projector_folders)
                self._hparams.poll()
                # Filters are only suspected when everything was listed and nothing matched.
                if not (self._has_sent or self._scheduler.is_busy or self._watcher.is_listing):
                    self._filters.poll()
                if not self._scheduler.is_busy:
                    self._restarts.look()
                if self._answer_control():
                    break
            is_growing = self._send_rest()
            self._restarts.look()
            self._check_filters()
            self._stop_token.cancel()
            return replace(self.summary(), is_growing=is_growing)
        except RunRetrained:
            self._scheduler.drain()
            raise
        # KeyboardInterrupt too: requests of other threads have to end.
        except BaseException as error:
            self._stop_token.cancel()
            if isinstance(error, ServerError):
                self._scheduler.drain()
            raise
        finally:
            self._scheduler.close()

    def summary(self) -> Summary:
        """Return what was committed so far, and what is missing."""
        uploads = self._uploads_to_recheck()
        state = self._state()
        counts = self._scheduler.counts
        return Summary(
            scalars=counts["scalars"],
            tensors=counts["tensors"],
            blobs=counts["blobs"],
            bytes=counts["bytes"],
            runs=state.runs,
            series=state.series,
            empty_values=counts["empty_values"],
            repeated=repeated_counts(counts),
            hparams_runs=self._hparams.count,
            files=self._watcher.file_count,
            file_bytes=self._watcher.total_bytes,
            skipped=self._skipped_counts(),
            skipped_files=self._cursors.skipped_files(str(self._options.logdir)),
            problems=[
                *self._tree.problems().values(),
                *(upload.error.explanation for upload in uploads if upload.error is not None),
                *map(_deleted_text, self._deleted_files),
                *(
                    sentence
                    for sentences in self._projector.problems.values()
                    for sentence in sentences
                ),
                *self._hparams.problems(),
                *filter(None, [None if self._has_sent else self._filters.problem]),
            ],
            notes=[note for upload in uploads if (note := upload.incomplete_record_note())],
        )

    @property
    def _has_sent(self) -> bool:
        return self._scheduler.series_count > 0

    def _check_filters(self) -> None:
        """Find out whether the filters match nothing of what is there."""
        control = self._options.control
        is_hurried = control is not None and control.is_hurried
        # A check may read all files: not while a deadline passes, or is about to be set.
        # Infinite: no deadline was set.
        if not (self._has_sent or is_hurried) and math.isinf(self._stop_token.deadline):
            self._filters.check()

    def _answer_control(self) -> bool:
        """Do what the control asks for; return whether it is time to end."""
        control = self._options.control
        if control is None:
            return False
        while (name := control.next_look) is not None:
            self._look()
            # A second look: only a file that changes between two looks is still being written.
            is_growing = self._look()
            self._check_filters()
            control.answer_look(name, replace(self.summary(), is_growing=is_growing))
        if self._scheduler.is_busy or not control.has_been_quiet(self._watcher.changed_at):
            return False
        return not self._look()

    def _send_rest(self) -> bool:
        """Send what the files contain now; return whether they were still changing meanwhile."""
        self._look()
        if self._options.is_one_shot:
            return False
        # `all` ends at the first look that finds nothing new.
        return all(self._look() for _ in range(LOOKS_MAX - 1))

    def _look(self) -> bool:
        """Check every file and send all of it; return whether any had changed since its last check.

        Files with unconfirmed errors are read once more.

        Raises:
            Unreachable: The deadline for stopping has passed.
        """
        self._send_enqueued()  # the watcher does not check files that are being sent
        changed_at = self._watcher.changed_at
        for changed, gone in self._watcher.rescan():
            self._enqueue_changes(changed, gone)
            self._scheduler.submit()
            self._show()
        self._send_enqueued()
        self._projector.poll(self._tree.projector_folders, is_last=True)
        self._hparams.poll(is_last=True)
        return self._watcher.changed_at != changed_at

    def _send_enqueued(self) -> None:
        """Send what is enqueued, and read files with unconfirmed errors once more."""
        confirm_until = time.monotonic() + CONFIRM_SECONDS + REREAD_SECONDS_MIN
        while self._scheduler.is_busy or (
            self._unconfirmed_files() and time.monotonic() < confirm_until
        ):
            self._send_pending()
            if not self._scheduler.is_busy:
                self._enqueue_changes(
                    [entry for entry in self._unconfirmed_files() if self._needs_reread(entry)], []
                )
            if self._stop_token.is_deadline_passed:
                raise Unreachable("the deadline for stopping passed before everything was sent")

    def _send_pending(self) -> None:
        """Send pending files, then wait for an answer or until the next check of files is due."""
        self._scheduler.submit()
        is_busy = self._scheduler.can_submit() or self._watcher.is_listing
        pause = 0.0 if is_busy else min(self._watcher.pause_seconds(), PAUSE_SECONDS_MAX)
        if self._scheduler.is_waiting:
            self._scheduler.process_done(pause)
        elif self._stop_token.is_stopping or self._options.is_one_shot:
            # Not the token's sleep: it returns at once while stopping, and this would spin.
            time.sleep(min(pause, REREAD_SECONDS_MIN / 10))
        else:
            self._stop_token.sleep(pause)
        if not (self._scheduler.is_busy or self._watcher.is_listing):
            self._backlog.note_all_sent()
        self._show()

    def _enqueue_changes(self, changed: Iterable[FileEntry], gone: Iterable[FileEntry]) -> None:
        """Enqueue files that may have new content, and remove deleted ones."""
        for entry in gone:
            self._guard.note_deleted(entry)
            if self._scheduler.forget(entry):
                self._deleted_files[entry.path] = entry
                self._progress.report_problem(_deleted_text(entry.path))
            self._files_to_recheck.pop(entry, None)

        backlog = []
        for entry in changed:
            self._deleted_files.pop(entry.path, None)
            self._restarts.note_file(entry)
            # During the first listing, everything is new and nothing is urgent.
            is_new = entry.committed == 0 and self._watcher.is_listing
            is_small = entry.size - entry.committed < URGENT_BYTES_MAX
            is_urgent = is_small and not is_new
            self._scheduler.enqueue(entry, is_urgent=is_urgent)
            if not is_urgent:
                backlog.append(entry)
        if backlog:
            self._backlog.note(backlog)

    def _park(self, entry: FileEntry) -> None:
        """Let the watcher check a file again from which everything was sent that can be."""
        upload = self._cache.find(entry)
        if upload is not None and (upload.error is not None or upload.may_change(entry.size)):
            self._files_to_recheck[entry] = None
            if upload.error is not None and not upload.has_unconfirmed_error:
                self._progress.report_problem(upload.error.explanation)
        else:
            self._files_to_recheck.pop(entry, None)
        self._hparams.add(entry.folder)
        self._watcher.park(entry)

    def _unconfirmed_files(self) -> list[FileEntry]:
        return [
            entry
            for entry in self._files_to_recheck
            if (upload := self._cache.find(entry)) is not None and upload.has_unconfirmed_error
        ]

    def _uploads_to_recheck(self) -> list[FileUpload]:
        uploads = map(self._cache.find, self._files_to_recheck)
        return [upload for upload in uploads if upload is not None]

    def _needs_reread(self, entry: FileEntry) -> bool:
        upload = self._cache.find(entry)
        return upload is not None and upload.needs_reread(entry.size, 0.0)

    def _state(self) -> ProgressState:
        counts = self._scheduler.counts
        return ProgressState(
            done_bytes=self._scheduler.done_bytes,
            total_bytes=self._watcher.total_bytes,
            scalars=counts["scalars"],
            runs=self._scheduler.run_count,
            series=self._scheduler.series_count,
            sent_bytes=counts["bytes"],
            points=counts["scalars"] + counts["tensors"] + counts["blobs"],
            skipped=self._skipped_counts(),
            is_idle=not (self._scheduler.is_busy or self._watcher.is_listing),
        )

    def _skipped_counts(self) -> Counter[str]:
        """Return what is missing so far: the counts of points and files by reason."""
        skipped = self._cursors.skipped()
        skipped.update(
            upload.error.kind for upload in self._uploads_to_recheck() if upload.error is not None
        )
        for reason, count in (
            ("path that could not be used", len(self._tree.problems())),
            ("file deleted before all of it was sent", len(self._deleted_files)),
        ):
            if count:
                skipped[reason] = count
        return skipped

    def _show(self) -> None:
        if self._progress.is_due():
            self._progress.show(self._state())

    def _report_problems(self) -> None:
        has_files = self._watcher.file_count or self._tree.projector_folders
        if not (self._watcher.is_listing or has_files or self._tree.is_missing):
            is_filtered = self._options.series_filter != EVERYTHING
            self._progress.report_problem(
                f"{self._options.logdir}: no event files there yet"
                f"{' in runs that the filters select' if is_filtered else ''}"
            )
        if self._tree.has_new_problems:
            self._tree.has_new_problems = False
            for sentence in self._tree.problems(seen_times_min=REPORTED_FAILURES_MIN).values():
                self._progress.report_problem(sentence)


def _deleted_text(path: str) -> str:
    return f"{printable_path(path)}: was deleted before all of it was sent"
