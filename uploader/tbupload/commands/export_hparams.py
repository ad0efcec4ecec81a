"""`tbupload export --hparams FILE`: writes the table of an experiment's sessions to one file."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from tbupload.commands.connect import series_filter_from_options
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.console.output import print_json, print_line
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import size_text
from tbupload.errors import ServerError, UsageError
from tbupload.events.filters import SeriesFilter
from tbupload.export.progress import ExportProgress
from tbupload.export.session_files import check_file, write_sessions
from tbupload.export.sessions import read_sessions
from tbupload.http.client import Client
from tbupload.http.transport import Transport


def check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options of other exports, or a file that cannot be written."""
    if options.experiment is None:
        raise UsageError("--hparams needs --experiment: it writes the sessions of one experiment")
    if options.format is not None:
        raise UsageError("--format is for --output: with --hparams, the file's suffix says it")
    if series_filter_from_options(options) != SeriesFilter():
        raise UsageError("--hparams writes all sessions: it cannot be used with filters of series")
    check_file(options.hparams.expanduser())


def export_hparams(
    transport: Transport, progress: ConsoleProgress, options: argparse.Namespace
) -> int:
    """Write the sessions, and return 0. Raise UploadError if that fails: no file is left then."""
    path: Path = options.hparams.expanduser()
    experiment_id = resolve_experiment_id(options.experiment, Client(transport))
    display = ExportProgress(progress, experiment_id, "sessions")
    is_first = True

    def show(sessions: int, total: int) -> None:
        nonlocal is_first
        if is_first:
            display.begin(total)
            is_first = False
        display.job_done(sessions)

    try:
        summary = write_sessions(read_sessions(transport, experiment_id), path, show)
    except ServerError as error:
        if options.json:
            print_json({"event": "failed", "experiment_id": experiment_id, "error": str(error)})
        raise
    finally:
        display.close()

    if options.json:
        done = {"event": "done", "file": str(path), "experiment_id": experiment_id}
        print_json({**done, **asdict(summary)})
    else:
        print_line(str(path))
    progress.info(
        f"exported {summary.sessions:,} sessions: {summary.columns:,} columns"
        f" ({size_text(summary.bytes)})"
    )
    return 0
