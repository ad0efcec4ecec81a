"""`tbupload upload`: uploads a log directory, or with `--dry-run` counts what it would send."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tbupload.commands.connect import (
    access_from_options,
    progress_from_options,
    series_filter_from_options,
    transport_from_access,
)
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TEMPORARY_FAILURE
from tbupload.commands.uploading.check_options import check_options
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS, DryRun
from tbupload.commands.uploading.dry_run_target import plan_target
from tbupload.commands.uploading.follow_requests import start_control
from tbupload.commands.uploading.recording import (
    UploadRecording,
    check_recording,
    describe_recording,
    recording_lines,
)
from tbupload.commands.uploading.resolve_experiment import (
    NOT_FOUND,
    Target,
    TargetResolver,
    new_name,
)
from tbupload.console.output import ignore_broken_pipe, print_json
from tbupload.console.progress import ConsoleProgress
from tbupload.console.terminal import write_raw
from tbupload.errors import LogdirError, Refused, RunRetrained, ServerError, Unreachable, UsageError
from tbupload.events.filters import SeriesFilter
from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.http.cancellation import STOP_GRACE_SECONDS, StopToken
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.logdir.scan import check_logdir, has_uploadable_files, is_there, no_files_text
from tbupload.upload.filter_check import explain_filters, misspelled_plugin
from tbupload.upload.follow_control import FollowControl
from tbupload.upload.plugins.hparams_file import NO_HPARAMS, read_hparams_file
from tbupload.upload.session import PAUSE_SECONDS_MAX, Upload, UploadOptions
from tbupload.upload.summary import Summary

ONE_SHOT_RETRY_TIMEOUT_SECONDS: Final = 300.0
"""Default `--retry-timeout` of `--one-shot`; an upload that follows its files has no timeout."""

_PARENT_POLL_SECONDS: Final = 2.0
"""Interval of the check that the parent lives: its other children may keep our stdin open."""

_CLEAR_LIVE_LINES: Final = b"\r\x1b[J"
"""Moves to the start of the line and erases to the end: the progress lines and an echoed `^C`."""


def upload(options: argparse.Namespace) -> int:
    """Run `tbupload upload`: send a log directory to a new or an existing experiment."""
    check_options(options)
    check_recording(options)

    hparams = NO_HPARAMS
    if options.hparams is not None:
        hparams = read_hparams_file(options.hparams.expanduser())

    retain_freed_memory()
    logdir: Path = options.logdir.expanduser()
    if not options.wait_for_logdir or is_there(logdir):
        check_logdir(logdir)

    progress = progress_from_options(options)
    series_filter = series_filter_from_options(options)
    _check_filter(options, logdir, series_filter)
    is_read_once = options.one_shot or options.dry_run
    if is_read_once and not has_uploadable_files(logdir, series_filter):
        raise LogdirError(no_files_text(logdir))
    if options.dry_run:
        return _dry_run(DryRun(logdir, series_filter, hparams, progress), progress, options)

    upload_options = UploadOptions(
        logdir,
        series_filter,
        options.one_shot,
        options.poll_seconds,
        hparams,
        # Beside a job, its cores are not idle for long.
        readers=options.readers
        if options.readers is not None
        else (None if options.end_with_process is None else 0),
    )
    return _UploadRun(options, upload_options, progress).run()


def _check_filter(options: argparse.Namespace, logdir: Path, series_filter: SeriesFilter) -> None:
    """Raise UsageError for filters that match nothing.

    A log directory that is followed may have more later: only misspelled plugins are an error.
    """
    explain = explain_filters if options.one_shot or options.dry_run else misspelled_plugin
    sentence = explain(logdir, series_filter, DEFAULT_LIMITS)
    if sentence is not None:
        raise UsageError(sentence)


def _how_to_separate(options: argparse.Namespace) -> str:
    """Return the options that upload the same to another experiment."""
    if options.experiment_name is not None:
        return "another --experiment-name"
    return "--new" if options.experiment is None else "--new in place of --experiment"


def _dry_run(dry_run: DryRun, progress: ConsoleProgress, options: argparse.Namespace) -> int:
    event: dict[str, Any] = {"event": "done", "dry_run": True}
    try:
        dry_run.run()
    except KeyboardInterrupt:
        event = {"event": "failed", "error": "interrupted", "dry_run": True}

    progress.close()
    summary = dry_run.summary()
    logdir = options.logdir.expanduser()
    target = plan_target(options, logdir, series_filter_from_options(options), progress)
    recorded = describe_recording(options, logdir)
    event |= {"wire_bytes": dry_run.wire_bytes, **target.as_json(), "recorded": recorded}
    _print_end_event(event, summary, options)
    if "error" in event:
        progress.info("interrupted; counted so far:")
    for line in dry_run.lines(progress.has_reported):
        (progress.info if summary.is_complete else progress.warn)(line)
    if target.sentence:
        (progress.info if target.retrained_run is None else progress.warn)(target.sentence)
    if target.experiment_id is None and options.experiment_name is None and options.name is None:
        progress.info(f"would name a new experiment {new_name(options)!r} (--name NAME)")
    for line in recording_lines(recorded):
        progress.info(line)
    if "error" in event:
        return EXIT_INTERRUPTED
    return 0 if summary.is_complete else EXIT_FAILED


class _UploadRun:
    """One run of the command: uploads to one experiment, or to more if a run is trained again.

    All of them share the control of an upload that follows its files.
    """

    def __init__(
        self, options: argparse.Namespace, upload_options: UploadOptions, progress: ConsoleProgress
    ) -> None:
        self._options = options
        self._progress = progress
        self._stop_token = StopToken()
        self._is_complete = True
        default_timeout = ONE_SHOT_RETRY_TIMEOUT_SECONDS if upload_options.is_one_shot else math.inf
        retry_policy = RetryPolicy(options.retry_timeout or default_timeout, self._stop_token)
        access = access_from_options(options, progress)
        self._client = Client(transport_from_access(access, options, retry_policy, progress))
        self._recording = UploadRecording(options, upload_options.logdir, access, progress)
        self._control = start_control(options, self._stop_token, self._recording.recorder)
        self._upload_options = replace(upload_options, control=self._control)
        find_origin = self._recording.find_origin
        self._resolver = TargetResolver(
            self._client, access.server, options, self._upload_options, find_origin, progress
        )

    def run(self) -> int:
        """Upload, report, and return the exit code. Raise ServerError and UsageError."""
        with _stop_on_signals(self._stop_token, self._control, self._progress):
            if self._options.end_with_stdin:
                _stop_on_stdin(self._stop_token)
            self._recording.announce()
            if self._options.commands_from_stdin:
                with ignore_broken_pipe():
                    print_json({"event": "connecting"})
            target = self._resolver.resolve()
            self._progress.start(target.streams.url)
            first_url = target.streams.url
            target, summary = self._record_upload(target)

        target.save()
        is_same = target.is_resumed and summary.is_empty and summary.is_complete
        if is_same and self._upload_options.is_one_shot:
            self._progress.info(
                "nothing new: all of this was uploaded to the experiment before; "
                f"{_how_to_separate(self._options)} uploads it to another one"
            )
        code = _report_success(summary, self._progress, self._options)
        if target.streams.url != first_url:
            self._progress.warn(
                f"this is in another experiment than at first: {target.streams.url}"
            )
        return code if self._is_complete else EXIT_FAILED

    def _record_upload(self, target: Target) -> tuple[Target, Summary]:
        """Wait for the log directory, upload as `_upload` does, and record that if it is new."""
        is_repeated = target.is_resumed and self._upload_options.is_one_shot
        if not is_repeated:
            self._recording.start(target.streams)
        is_complete = False
        try:
            if self._options.wait_for_logdir and not self._wait_for_logdir():
                logdir = self._upload_options.logdir
                summary = Summary(notes=[f"{logdir}: the directory never appeared"])
            else:
                target, summary = self._upload(target)
            is_complete = summary.is_complete
            if is_repeated and not summary.is_empty:
                self._recording.start(target.streams)
        finally:
            is_sent = self._recording.close(is_complete=is_complete)
            self._is_complete = self._is_complete and is_sent
        return target, summary

    def _upload(self, target: Target) -> tuple[Target, Summary]:
        """Upload to the target; return the last one, and the summary of the upload to that."""
        while True:
            session = Upload(
                self._client,
                target.streams,
                target.guard,
                self._upload_options,
                self._progress,
                self._stop_token,
            )
            try:
                return target, session.run()
            except RunRetrained as event:
                self._report_earlier(session.summary())
                earlier = target
                target = self._resolver.resolve_retrained(target, event.run)
                self._progress.start(target.streams.url)
                if target.streams.experiment_id != earlier.streams.experiment_id:
                    self._recording.start(target.streams)
            except ServerError as error:
                target.save()
                _report_failure(error, session.summary(), target, self._progress, self._options)
                raise

    def _report_earlier(self, summary: Summary) -> None:
        """Report what was sent before a run was trained again, if there was something."""
        self._is_complete = self._is_complete and summary.is_complete
        if summary.is_complete and summary.is_empty:
            return
        for line in summary.lines("sent", self._progress.has_reported):
            (self._progress.info if summary.is_complete else self._progress.warn)(line)

    def _wait_for_logdir(self) -> bool:
        """Wait until the log directory exists or it is time to end; return whether it exists."""
        logdir, control = self._upload_options.logdir, self._control
        while not logdir.is_dir() and not self._stop_token.is_stopping:
            if control is not None:
                while (name := control.next_look) is not None:
                    control.answer_look(name, Summary())
                if control.has_been_quiet():
                    break
            self._stop_token.sleep(min(self._upload_options.poll_seconds, PAUSE_SECONDS_MAX))
        return logdir.is_dir()


def _report_success(
    summary: Summary, progress: ConsoleProgress, options: argparse.Namespace
) -> int:
    progress.close()
    _print_end_event({"event": "done"}, summary, options)
    for line in summary.lines("sent", progress.has_reported):
        (progress.info if summary.is_complete else progress.warn)(line)
    return 0 if summary.is_complete else EXIT_FAILED


def _report_failure(
    error: ServerError,
    summary: Summary,
    target: Target,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> None:
    """Report what was sent before the error; the caller of the command reports the error itself."""
    progress.close()
    _print_end_event({"event": "failed", "error": str(error)}, summary, options)
    for line in summary.lines("sent", progress.has_reported):
        progress.warn(line)
    if isinstance(error, Unreachable):
        progress.warn(f"nothing is lost; to send the rest later: {target.resume_advice}")
    elif isinstance(error, Refused) and error.status == NOT_FOUND:
        experiment_id = target.streams.experiment_id
        progress.warn(
            f"experiment {experiment_id} was deleted meanwhile, or this token may not write to it "
            f"any more: `tbupload restore {experiment_id}` undoes a deletion, and --new uploads "
            "to another experiment"
        )


def _print_end_event(event: dict[str, Any], summary: Summary, options: argparse.Namespace) -> None:
    if options.json:
        with ignore_broken_pipe():
            print_json({**event, **summary.as_json()})


def _stop_on_stdin(stop_token: StopToken) -> None:
    """Start a thread that requests an orderly stop on stdin data or EOF, or the parent's exit."""
    thread = threading.Thread(
        target=_wait_and_stop, args=(stop_token, os.getppid()), name="stdin", daemon=True
    )
    thread.start()


def _wait_and_stop(stop_token: StopToken, parent: int) -> None:
    try:
        _wait_for_stdin(parent)
    finally:
        stop_token.stop()


def _wait_for_stdin(parent: int) -> None:
    if sys.stdin is None:
        return
    descriptor = sys.stdin.fileno()
    # Windows can only select from sockets, and does not change the parent ID of orphans.
    if sys.platform == "win32":
        os.read(descriptor, 1)
        return
    while (
        os.getppid() == parent and not select.select([descriptor], [], [], _PARENT_POLL_SECONDS)[0]
    ):
        pass


@contextlib.contextmanager
def _stop_on_signals(
    stop_token: StopToken, control: FollowControl | None, progress: ConsoleProgress
) -> Iterator[None]:
    """Stop gracefully on the first Ctrl-C or SIGTERM during the block, and exit on the second."""
    is_stop_requested = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stop_requested
        # The main thread may hold the console's lock when the signal arrives: write without it.
        clear = _CLEAR_LIVE_LINES if progress.is_live else b""
        if is_stop_requested:
            # sys.exit would wait for the requests of other threads.
            write_raw(clear + b"tbupload: stopped at once; committed data is kept\n")
            os._exit(EXIT_TEMPORARY_FAILURE)
        is_stop_requested = True
        if number == signal.SIGTERM and control is not None:
            control.hurry()
        else:
            stop_token.stop(STOP_GRACE_SECONDS if number == signal.SIGTERM else math.inf)
        if progress.shows_info:
            write_raw(clear + b"stopping after sending what is there now; repeat to stop at once\n")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
