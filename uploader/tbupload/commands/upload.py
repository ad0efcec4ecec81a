"""`tbupload upload`: from its options to its exit code."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tbupload.commands.connect import access_of, client_of, progress_of, series_filter_of
from tbupload.commands.dry_run import Survey
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_LATER
from tbupload.commands.resolve_experiment import Opened, open_experiment
from tbupload.commands.stdin_watch import end_with_stdin
from tbupload.console.output import outliving_readers, put_json
from tbupload.console.progress import Progress
from tbupload.console.terminal import write_raw
from tbupload.errors import LogdirError, ServerError, Unreachable, UsageError
from tbupload.events.malloc_tuning import hold_freed_memory
from tbupload.http.retry import STOP_GRACE_SECONDS, Patience
from tbupload.logdir.scan import check_logdir, has_anything, nothing_there
from tbupload.upload.session import Upload, UploadOptions
from tbupload.upload.summary import Summary

ONE_SHOT_GIVE_UP_SECONDS: Final = 300.0
"""How long `--one-shot` tries a server that does not answer; an upload that follows its files tries for ever."""

CLEAR_LIVE_LINES: Final = b"\r\x1b[J"
"""Takes away the lines that are drawn again and again, and the ^C that the terminal put there."""


def upload(options: argparse.Namespace) -> int:
    """Sends a logdir to a new experiment, or to one that is there."""
    _check_options(options)
    hold_freed_memory()
    logdir: Path = options.logdir.expanduser()
    if logdir.exists() or not options.wait_for_logdir:
        check_logdir(logdir)
    progress = progress_of(options)
    series_filter = series_filter_of(options)
    if options.dry_run:
        return _dry_run(Survey(logdir, series_filter, progress), progress, options)
    if options.one_shot and not has_anything(logdir, series_filter):
        raise LogdirError(nothing_there(logdir))
    choice = UploadOptions(logdir, series_filter, options.one_shot, options.poll_seconds)
    return _upload(options, choice, progress)


def _dry_run(survey: Survey, progress: Progress, options: argparse.Namespace) -> int:
    event: dict[str, Any] = {"event": "done", "dry_run": True}
    try:
        survey.run()
    except KeyboardInterrupt:
        event = {"event": "failed", "error": "interrupted", "dry_run": True}
    progress.close()
    summary = survey.summary()
    _put_end({**event, "wire_bytes": survey.wire_bytes}, summary, options)
    if "error" in event:
        progress.say("stopped before the end; until there:")
    for line in survey.lines(progress.has_said):
        (progress.say if summary.is_complete else progress.warn)(line)
    if "error" in event:
        return EXIT_INTERRUPTED
    return 0 if summary.is_complete else EXIT_FAILED


def _upload(options: argparse.Namespace, choice: UploadOptions, progress: Progress) -> int:
    patience = Patience(options.give_up_seconds or (ONE_SHOT_GIVE_UP_SECONDS if choice.is_one_shot else math.inf))
    access = access_of(options, progress)
    client = client_of(access, options, patience, progress)
    with _orderly_end(patience, progress):
        if options.end_with_stdin:
            end_with_stdin(patience)
        opened = open_experiment(client, access.server, options, progress)
        progress.begin(opened.streams.url)
        if options.wait_for_logdir and not _is_there(choice, patience):
            return _finish(Summary(notes=[f"{choice.logdir}: it was never there"]), progress, options)
        an_upload = Upload(client, opened.streams, choice, progress, patience)
        try:
            summary = an_upload.run()
        except ServerError as error:
            opened.stopped()
            _tell_failure(error, an_upload.summary(), opened, progress, options)
            raise
    if choice.is_one_shot:
        opened.completed()
    else:
        opened.stopped()
    return _finish(summary, progress, options)


def _is_there(choice: UploadOptions, patience: Patience) -> bool:
    """Waits for the logdir, until an end is asked for; whether it is there."""
    while not choice.logdir.is_dir() and not patience.is_stopping:
        patience.sleep(choice.poll_seconds)
    return choice.logdir.is_dir()


def _finish(summary: Summary, progress: Progress, options: argparse.Namespace) -> int:
    progress.close()
    _put_end({"event": "done"}, summary, options)
    for line in summary.lines("sent", progress.has_said):
        (progress.say if summary.is_complete else progress.warn)(line)
    return 0 if summary.is_complete else EXIT_FAILED


def _tell_failure(
    error: ServerError, summary: Summary, opened: Opened, progress: Progress, options: argparse.Namespace
) -> None:
    """Says how far the upload came; the error itself is said by whoever ends the program."""
    progress.close()
    _put_end({"event": "failed", "error": str(error)}, summary, options)
    for line in summary.lines("sent", progress.has_said):
        progress.warn(line)
    if isinstance(error, Unreachable):
        progress.warn(f"the rest can be sent later, nothing is lost: {opened.how_to_resume}")


def _put_end(event: dict[str, Any], summary: Summary, options: argparse.Namespace) -> None:
    if options.json:
        with outliving_readers():
            put_json({**event, **summary.as_json()})


@contextlib.contextmanager
def _orderly_end(patience: Patience, progress: Progress) -> Iterator[None]:
    """While it lasts, the first Ctrl-C or SIGTERM asks for an orderly end and the second one ends at once."""
    is_asked = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_asked
        # Such a signal may come while the main thread holds the lock of the lines: they are written without it.
        clear = CLEAR_LIVE_LINES if progress.is_live else b""
        if is_asked:
            # Requests may be under way in other threads, and an orderly exit would wait for them.
            write_raw(clear + b"tbupload: ended at once; what was committed stays\n")
            os._exit(EXIT_LATER)
        is_asked = True
        patience.stop(STOP_GRACE_SECONDS if number == signal.SIGTERM else math.inf)
        if progress.is_talkative:
            write_raw(clear + b"ending when what is there now has been sent; once more to end at once\n")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _check_options(options: argparse.Namespace) -> None:
    given = [name for name in ("name", "description", "visibility") if getattr(options, name) is not None]
    if options.experiment is not None and given:
        raise UsageError(f"--{given[0]} is for a new experiment; change this one with `tbupload update-metadata`")
    if options.experiment is not None and options.new:
        raise UsageError("--new starts an experiment and --experiment goes on with one: give one of them")
    if options.one_shot and options.wait_for_logdir:
        raise UsageError("--wait-for-logdir is for an upload that follows its files, without --one-shot")
