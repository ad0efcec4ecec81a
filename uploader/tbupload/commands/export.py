"""`tbupload export`: writes experiments to files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tbupload.commands.connect import (
    progress_from_options,
    reading_policy,
    series_filter_from_options,
    transport_from_options,
)
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_TEMPORARY_FAILURE
from tbupload.commands.experiment_address import find_experiment_id, resolve_experiment_id
from tbupload.commands.options.export import DEFAULT_FORMAT
from tbupload.commands.options.shared import READ_RETRY_TIMEOUT_SECONDS
from tbupload.commands.stored_series import explain_filters_of
from tbupload.console.output import print_json, print_result
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import PROBLEMS_SHOWN, counted, size_text
from tbupload.errors import ServerError, Unreachable, UsageError
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.destination import Destination
from tbupload.export.directory_names import MANIFEST
from tbupload.export.export_options import ExportOptions, ExportSummary, filters_as_json
from tbupload.export.exporter import Exporter
from tbupload.export.progress import ExportProgress
from tbupload.export.session_files import check_file, write_sessions
from tbupload.export.sessions import read_sessions
from tbupload.http.client import Client
from tbupload.http.transport import Transport
from tbwire.points import DATA_CLASSES


def export(options: argparse.Namespace) -> int:
    """Run `tbupload export`: write experiments into a directory, or resume an earlier export.

    With `--all`, an experiment that cannot be read does not stop the export of the others. With
    `--hparams`, write only the table of sessions.
    """
    progress = progress_from_options(options)
    if options.hparams is not None:
        _check_options(options)
    if options.attempt is not None and (options.all or options.hparams is not None):
        raise UsageError("--attempt is for --output, and the points of one --experiment")
    policy = reading_policy(READ_RETRY_TIMEOUT_SECONDS, options.retry_timeout)
    transport = transport_from_options(options, policy, progress)
    if options.hparams is not None:
        return _export_hparams(transport, progress, options)

    options.format = options.format or DEFAULT_FORMAT
    code = 0
    for export_options in _export_options(transport, options):
        try:
            client = ExportClient(transport, export_options.experiment_id, export_options.attempt)
            summary = _export(client, export_options, progress, options)
        except ServerError as error:
            if options.experiment is not None or not _is_of_one_experiment(error):
                raise
            progress.warn(f"{export_options.experiment_id}: {error}; continuing with the others")
            code = EXIT_TEMPORARY_FAILURE if isinstance(error, Unreachable) else code or EXIT_FAILED
        else:
            has_gaps = summary.losses or summary.lost_points or summary.missing_tables
            code = code or (EXIT_FAILED if has_gaps else 0)
    return code


def _is_of_one_experiment(error: ServerError) -> bool:
    """Return whether the error concerns one experiment only, so that others may succeed."""
    return not isinstance(error, Unreachable) or error.is_mid_response


def _export_options(transport: Transport, options: argparse.Namespace) -> Iterator[ExportOptions]:
    """Yield the options for the experiment, or with `--all` for each of the workspace."""
    directory: Path = options.output.expanduser()
    series_filter = series_filter_from_options(options)
    if options.experiment is not None:
        experiment_id = resolve_experiment_id(options.experiment, Client(transport))
        reader = ExportClient(transport, experiment_id)
        place = f"experiment {experiment_id}"
        if sentence := explain_filters_of(reader, series_filter, DATA_CLASSES, place):
            raise UsageError(sentence)
        yield ExportOptions(
            transport.server,
            experiment_id,
            options.format,
            series_filter,
            directory,
            options.attempt,
        )
        return

    identity: dict[str, Any] = {
        "server": transport.server,
        "format": options.format,
        **filters_as_json(series_filter),
    }
    destination = Destination(directory, {"all": True, **identity})
    client = Client(transport)
    destination.begin(None)
    for experiment in client.list_experiments():
        # Checked although it is the server's: it becomes the name of a directory.
        experiment_id = find_experiment_id(experiment["experiment_id"])
        yield ExportOptions(
            transport.server,
            experiment_id,
            options.format,
            series_filter,
            directory / experiment_id,
        )


def _export(
    client: ExportClient,
    export_options: ExportOptions,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> ExportSummary:
    export_progress = ExportProgress(progress, export_options.experiment_id)
    try:
        summary = Exporter(client, export_options, export_progress).run()
    except ServerError as error:
        if options.json:
            print_json(
                {
                    "event": "failed",
                    "experiment_id": export_options.experiment_id,
                    "error": str(error),
                }
            )
        if isinstance(error, Unreachable):
            progress.warn("complete files are kept: run the same command again for the rest")
        raise
    finally:
        export_progress.close()
    _print_summary(summary, export_options.directory, progress, options)
    return summary


def _print_summary(
    summary: ExportSummary,
    directory: Path,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> None:
    content = {"event": "done", "directory": str(directory), **summary.as_json()}
    print_result(content, str(directory), is_json=options.json)
    _warn_of_lost_points(summary, progress)
    for table, reason in summary.missing_tables.items():
        progress.warn(f"left out: the table {table}: {reason}")
    if summary.was_complete:
        progress.info(f"{directory}: already complete")
        return

    blobs = f", of which {summary.blob_files:,} of blobs" if summary.blob_files else ""
    progress.info(
        f"exported {counted(summary.points, 'point')} of {counted(summary.series, 'series')} "
        f"in {counted(summary.runs, 'run')}: {counted(summary.files, 'file')}{blobs} "
        f"({size_text(summary.bytes)} written now)"
    )
    for reason, count in summary.losses.items():
        progress.warn(f"{reason}: {counted(count, 'point')}")
    if summary.renamed_runs:
        runs = counted(len(summary.renamed_runs), "run")
        progress.warn(f"renamed {runs} whose name is not a valid path; {MANIFEST} has the names")


def _warn_of_lost_points(summary: ExportSummary, progress: ConsoleProgress) -> None:
    """List the first points that were left out, and say what to do; `--json` lists all of them."""
    if not summary.lost_points:
        return
    for point in summary.lost_points[:PROBLEMS_SHOWN]:
        name = f"{point['run']}  {point['tag']}  step {point['step']}"
        progress.warn(f"left out: {name}: {point['reason']}")
    count = counted(len(summary.lost_points), "point")
    progress.warn(
        f"left out {count}: the server has lost the bytes or cannot read them. Send them again "
        "from the files (tbupload verify --repair), then export into another directory"
    )


def _check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for options of other exports, or a file that cannot be written."""
    if options.experiment is None:
        raise UsageError("--hparams needs --experiment: it writes the sessions of one experiment")
    if options.format is not None:
        raise UsageError("--format is for --output: with --hparams, the file's suffix says it")
    if series_filter_from_options(options) != SeriesFilter():
        raise UsageError("--hparams writes all sessions: it cannot be used with filters of series")
    check_file(options.hparams.expanduser())


def _export_hparams(
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

    done = {"event": "done", "file": str(path), "experiment_id": experiment_id}
    print_result({**done, **asdict(summary)}, str(path), is_json=options.json)
    progress.info(
        f"exported {summary.sessions:,} sessions: {summary.columns:,} columns"
        f" ({size_text(summary.bytes)})"
    )
    return 0
