"""`tbupload upload`: from its options to its exit code."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from tbupload.commands.connect import access_of, client_of, find_experiment_id, progress_of
from tbupload.commands.dry_run import survey
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_LATER
from tbupload.commands.output import put_json, put_line
from tbupload.errors import LogdirError, ServerError, Unreachable, UsageError
from tbupload.reading.filters import SeriesFilter
from tbupload.sending.client import Client, Streams
from tbupload.sending.patience import Patience
from tbupload.sending.progress import Progress
from tbupload.sending.scan import check_logdir, scan_logdir
from tbupload.sending.summary import Summary
from tbupload.sending.upload import Upload, UploadOptions

ONE_SHOT_GIVE_UP_SECONDS: Final = 300.0
"""How long `--one-shot` tries a server that does not answer; an upload that follows its files tries for ever."""


def upload(options: argparse.Namespace) -> int:
    """Sends a logdir to a new experiment, or to one that is there."""
    logdir: Path = options.logdir.expanduser()
    check_logdir(logdir)
    _check_new_experiment_options(options)
    progress = progress_of(options)
    series_filter = _series_filter(options)
    if options.dry_run:
        return _finish(survey(logdir, series_filter, progress), progress, options, "would send")
    if options.one_shot and not _has_event_files(logdir, series_filter):
        raise LogdirError(f'{logdir}: no event files found (files with "tfevents" in their names)')
    choice = UploadOptions(logdir, series_filter, options.one_shot, options.poll_seconds)
    return _upload(options, choice, progress)


def _upload(options: argparse.Namespace, choice: UploadOptions, progress: Progress) -> int:
    patience = Patience(options.give_up_seconds or (ONE_SHOT_GIVE_UP_SECONDS if choice.is_one_shot else math.inf))
    client = client_of(access_of(options, progress), options, patience, progress)
    with _orderly_end(patience, progress):
        streams = _open_experiment(client, options, progress)
        an_upload = Upload(client, streams, choice, progress, patience)
        try:
            summary = an_upload.run()
        except ServerError as error:
            _tell_failure(error, an_upload.summary(), streams, progress, options)
            raise
    return _finish(summary, progress, options, "sent")


def _open_experiment(client: Client, options: argparse.Namespace, progress: Progress) -> Streams:
    """Creates the experiment or finds the one to go on with, and says at once where it is."""
    if options.experiment is not None:
        streams = client.get_streams(find_experiment_id(options.experiment))
        _put_created(streams, options)
        return streams
    visibility = options.visibility or "private"
    created = client.create_experiment(
        name=options.name or "", description=options.description or "", visibility=visibility
    )
    streams = client.get_streams(created["experiment_id"])
    _put_created(streams, options)
    if visibility == "private":
        progress.say(f"only you can see it; for a link that others can open: tbupload share {streams.experiment_id}")
    return streams


def _put_created(streams: Streams, options: argparse.Namespace) -> None:
    if options.json:
        put_json({"event": "created", "experiment_id": streams.experiment_id, "url": streams.url})
    else:
        put_line(streams.url)


def _finish(summary: Summary, progress: Progress, options: argparse.Namespace, verb: str) -> int:
    progress.close()
    if options.json:
        put_json({"event": "done", **summary.as_json()})
    for line in summary.lines(verb):
        (progress.say if summary.is_complete else progress.warn)(line)
    return 0 if summary.is_complete else EXIT_FAILED


def _tell_failure(
    error: ServerError, summary: Summary, streams: Streams, progress: Progress, options: argparse.Namespace
) -> None:
    """Says how far the upload came; the error itself is said by whoever ends the program."""
    progress.close()
    if options.json:
        put_json({"event": "failed", "error": str(error), **summary.as_json()})
    for line in summary.lines("sent"):
        progress.warn(line)
    if isinstance(error, Unreachable):
        progress.warn(f"the rest can be sent later, nothing is lost: add --experiment {streams.experiment_id}")


@contextlib.contextmanager
def _orderly_end(patience: Patience, progress: Progress) -> Iterator[None]:
    """While it lasts, the first Ctrl-C or SIGTERM asks for an orderly end and the second one ends at once."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        if patience.is_stopping:
            # Requests may be under way in other threads, and an orderly exit would wait for them.
            os.write(sys.stderr.fileno(), b"\ntbupload: ended at once; what was committed stays\n")
            os._exit(EXIT_LATER)
        patience.stop()
        os.write(sys.stderr.fileno(), _STOPPING if progress.is_talkative else b"")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# A signal may arrive while the main thread holds the lock of the progress lines, so its handler writes by itself.
_STOPPING: Final = b"\nending when what is there now has been sent; once more to end at once\n"


def _has_event_files(logdir: Path, series_filter: SeriesFilter) -> bool:
    scan = scan_logdir(logdir, series_filter, sys.maxsize)
    return bool(scan.files or scan.problems)


def _check_new_experiment_options(options: argparse.Namespace) -> None:
    given = [name for name in ("name", "description", "visibility") if getattr(options, name) is not None]
    if options.experiment is not None and given:
        raise UsageError(f"--{given[0]} is for a new experiment; change this one with `tbupload update-metadata`")


def _series_filter(options: argparse.Namespace) -> SeriesFilter:
    return SeriesFilter(
        plugins=options.plugins,
        include_runs=options.include_runs,
        exclude_runs=options.exclude_runs,
        include_tags=options.include_tags,
        exclude_tags=options.exclude_tags,
    )
