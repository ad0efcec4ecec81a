"""`tbupload upload`: uploads a log directory, or with `--dry-run` counts what it would send."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tbupload.commands.connect import (
    access_from_options,
    client_from_access,
    progress_from_options,
    series_filter_from_options,
)
from tbupload.commands.dry_run import DryRun
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TEMPORARY_FAILURE
from tbupload.commands.follow_requests import start_control
from tbupload.commands.resolve_experiment import Target, resolve_experiment
from tbupload.commands.stdin_watch import stop_on_stdin
from tbupload.console.output import ignore_broken_pipe, print_json
from tbupload.console.progress import ConsoleProgress
from tbupload.console.terminal import write_raw
from tbupload.errors import LogdirError, ServerError, Unreachable, UsageError
from tbupload.events.malloc_tuning import retain_freed_memory
from tbupload.http.cancellation import STOP_GRACE_SECONDS, StopToken
from tbupload.http.retry import RetryPolicy
from tbupload.logdir.scan import check_logdir, has_uploadable_files, no_files_text
from tbupload.upload.follow_control import FollowControl
from tbupload.upload.hparams_file import NO_HPARAMS, read_hparams_file
from tbupload.upload.session import PAUSE_SECONDS_MAX, Upload, UploadOptions
from tbupload.upload.summary import Summary

ONE_SHOT_RETRY_TIMEOUT_SECONDS: Final = 300.0
"""Default `--retry-timeout` of `--one-shot`; an upload that follows its files has no timeout."""

CLEAR_LIVE_LINES: Final = b"\r\x1b[J"
"""Moves to the start of the line and erases to the end: the progress lines and an echoed `^C`."""


def upload(options: argparse.Namespace) -> int:
    """Run `tbupload upload`: send a log directory to a new or an existing experiment."""
    _check_options(options)

    hparams = NO_HPARAMS
    if options.hparams is not None:
        hparams = read_hparams_file(options.hparams.expanduser())

    retain_freed_memory()
    logdir: Path = options.logdir.expanduser()
    if logdir.exists() or not options.wait_for_logdir:
        check_logdir(logdir)

    progress = progress_from_options(options)
    series_filter = series_filter_from_options(options)
    if options.dry_run:
        return _dry_run(DryRun(logdir, series_filter, hparams, progress), progress, options)
    if options.one_shot and not has_uploadable_files(logdir, series_filter):
        raise LogdirError(no_files_text(logdir))

    upload_options = UploadOptions(
        logdir, series_filter, options.one_shot, options.poll_seconds, hparams
    )
    return _upload(options, upload_options, progress)


def _dry_run(dry_run: DryRun, progress: ConsoleProgress, options: argparse.Namespace) -> int:
    event: dict[str, Any] = {"event": "done", "dry_run": True}
    try:
        dry_run.run()
    except KeyboardInterrupt:
        event = {"event": "failed", "error": "interrupted", "dry_run": True}

    progress.close()
    summary = dry_run.summary()
    _print_end_event({**event, "wire_bytes": dry_run.wire_bytes}, summary, options)
    if "error" in event:
        progress.info("interrupted; counted so far:")
    for line in dry_run.lines(progress.has_reported):
        (progress.info if summary.is_complete else progress.warn)(line)
    if "error" in event:
        return EXIT_INTERRUPTED
    return 0 if summary.is_complete else EXIT_FAILED


def _upload(
    options: argparse.Namespace, upload_options: UploadOptions, progress: ConsoleProgress
) -> int:
    stop_token = StopToken()
    retry_policy = RetryPolicy(
        options.retry_timeout
        or (ONE_SHOT_RETRY_TIMEOUT_SECONDS if upload_options.is_one_shot else math.inf),
        stop_token,
    )
    access = access_from_options(options, progress)
    client = client_from_access(access, options, retry_policy, progress)

    control = start_control(options, stop_token)
    upload_options = replace(upload_options, control=control)

    with _stop_on_signals(stop_token, control, progress):
        if options.end_with_stdin:
            stop_on_stdin(stop_token)
        target = resolve_experiment(client, access.server, options, progress)
        progress.start(target.streams.url)
        if options.wait_for_logdir and not _wait_for_logdir(upload_options, stop_token):
            return _report_success(
                Summary(notes=[f"{upload_options.logdir}: the directory never appeared"]),
                progress,
                options,
            )
        session = Upload(client, target.streams, upload_options, progress, stop_token)
        try:
            summary = session.run()
        except ServerError as error:
            target.mark_stopped()
            _report_failure(error, session.summary(), target, progress, options)
            raise

    if upload_options.is_one_shot:
        target.mark_completed()
    else:
        target.mark_stopped()
    return _report_success(summary, progress, options)


def _wait_for_logdir(upload_options: UploadOptions, stop_token: StopToken) -> bool:
    """Wait until the log directory exists or it is time to end; return whether it exists."""
    control = upload_options.control
    while not upload_options.logdir.is_dir() and not stop_token.is_stopping:
        if control is not None:
            while (name := control.pop_look()) is not None:
                control.report_look(name, Summary())
            if control.has_been_quiet():
                break
        stop_token.sleep(min(upload_options.poll_seconds, PAUSE_SECONDS_MAX))
    return upload_options.logdir.is_dir()


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


def _print_end_event(event: dict[str, Any], summary: Summary, options: argparse.Namespace) -> None:
    if options.json:
        with ignore_broken_pipe():
            print_json({**event, **summary.as_json()})


@contextlib.contextmanager
def _stop_on_signals(
    stop_token: StopToken, control: FollowControl | None, progress: ConsoleProgress
) -> Iterator[None]:
    """Stop gracefully on the first Ctrl-C or SIGTERM during the block, and exit on the second."""
    is_stop_requested = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stop_requested
        # The main thread may hold the console's lock when the signal arrives: write without it.
        clear = CLEAR_LIVE_LINES if progress.is_live else b""
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


def _check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for combinations that argparse cannot express."""
    fields = [
        name for name in ("name", "description", "visibility") if getattr(options, name) is not None
    ]

    if options.experiment is not None and fields:
        raise UsageError(
            f"--{fields[0]} is only for a new experiment; to change an existing one, "
            "use `tbupload update-metadata`"
        )

    if options.experiment is not None and options.new:
        raise UsageError("--new and --experiment exclude each other: use only one of them")

    for name in ("wait_for_logdir", "end_with_process"):
        if options.one_shot and getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} and --one-shot exclude each other")
    if options.commands_from_stdin and options.end_with_process is None:
        raise UsageError("--commands-from-stdin needs --end-with-process")
