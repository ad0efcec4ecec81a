"""`tbupload export`: from its options to its exit code."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tbupload.commands.connect import (
    access_from_options,
    find_experiment_id,
    progress_from_options,
    series_filter_from_options,
)
from tbupload.commands.exit_codes import EXIT_FAILED, EXIT_TEMPORARY_FAILURE
from tbupload.console.output import print_json, print_line
from tbupload.console.progress import ConsoleProgress
from tbupload.console.texts import PROBLEMS_SHOWN, size_text
from tbupload.errors import ServerError, Unreachable
from tbupload.export.client import ExportClient
from tbupload.export.destination import Destination
from tbupload.export.directory_names import MANIFEST
from tbupload.export.exporter import Exporter, ExportOptions, ExportSummary, filters_as_json
from tbupload.export.progress import ExportProgress
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport


def export(options: argparse.Namespace) -> int:
    """Writes experiments into a directory, and goes on where an export was broken off.

    Of a whole workspace, one that cannot be read is not in the way of the others.
    """
    progress = progress_from_options(options)
    access = access_from_options(options, progress)
    patience = RetryPolicy(options.retry_timeout)
    transport = Transport(access.server, access.token, options.cacert, patience, progress.warn)
    code = 0
    for choice in _choices(transport, options):
        try:
            server = ExportClient(transport, patience, choice.experiment_id)
            summary = _export(server, choice, progress, options)
        except ServerError as error:
            if options.experiment is not None or not _is_of_one_experiment(error):
                raise
            progress.warn(f"{choice.experiment_id}: {error}; going on with the others")
            code = EXIT_TEMPORARY_FAILURE if isinstance(error, Unreachable) else code or EXIT_FAILED
        else:
            code = code or (EXIT_FAILED if summary.losses or summary.lost_points else 0)
    return code


def _is_of_one_experiment(error: ServerError) -> bool:
    """Whether other experiments may fare better: this one was refused, or its answers break off."""
    return not isinstance(error, Unreachable) or error.is_mid_response


def _choices(transport: Transport, options: argparse.Namespace) -> Iterator[ExportOptions]:
    directory: Path = options.output.expanduser()
    series_filter = series_filter_from_options(options)
    if options.experiment is not None:
        experiment_id = find_experiment_id(options.experiment)
        yield ExportOptions(
            transport.server, experiment_id, options.format, series_filter, directory
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
        experiment_id = find_experiment_id(
            experiment["experiment_id"]
        )  # it becomes a directory's name
        yield ExportOptions(
            transport.server,
            experiment_id,
            options.format,
            series_filter,
            directory / experiment_id,
        )


def _export(
    server: ExportClient,
    choice: ExportOptions,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> ExportSummary:
    shown = ExportProgress(progress, choice.experiment_id)
    try:
        summary = Exporter(server, choice, shown).run()
    except ServerError as error:
        if options.json:
            print_json(
                {"event": "failed", "experiment_id": choice.experiment_id, "error": str(error)}
            )
        progress.warn("what is whole is kept: the same command goes on with the rest")
        raise
    finally:
        shown.close()
    _print_summary(summary, choice, progress, options)
    return summary


def _print_summary(
    summary: ExportSummary,
    choice: ExportOptions,
    progress: ConsoleProgress,
    options: argparse.Namespace,
) -> None:
    if options.json:
        print_json({"event": "done", "directory": str(choice.directory), **summary.as_json()})
    else:
        print_line(str(choice.directory))
    _warn_of_lost_points(summary, progress)
    if summary.was_complete:
        progress.info(f"{choice.directory}: it was all there")
        return
    progress.info(
        f"exported {summary.points:,} points of {summary.series:,} series in {summary.runs:,} runs: "
        f"{summary.files:,} files ({size_text(summary.bytes)} written now)"
    )
    for reason, count in summary.losses.items():
        progress.warn(f"{reason}: {count:,} points")
    if summary.renamed_runs:
        count = len(summary.renamed_runs)
        progress.warn(
            f"{count:,} runs have names that no directory can have; {MANIFEST} tells which is which"
        )


def _warn_of_lost_points(summary: ExportSummary, progress: ConsoleProgress) -> None:
    """Names points that were left out, and says what to do about them; `--json` has all of them."""
    if not summary.lost_points:
        return
    for point in summary.lost_points[:PROBLEMS_SHOWN]:
        name = f"{point['run']}  {point['tag']}  step {point['step']}"
        progress.warn(f"left out: {name}: {point['reason']}")
    progress.warn(
        f"{len(summary.lost_points):,} points were left out, since the server has lost their bytes or fails to read "
        "them: send them again from the files (tbupload verify --repair), then export into another directory"
    )
