"""Options of `tbupload export`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from tbupload.commands.options.shared import (
    READ_RETRY_TIMEOUT_SECONDS,
    add_retry_timeout,
    add_series_filter,
    number_parser,
)

DEFAULT_FORMAT: Final = "parquet"

EPILOG: Final = """\
examples:
  tbupload export --experiment ID --output DIR                  Parquet: points, tables and blobs
  tbupload export --experiment ID --format csv --output DIR     the same as CSV
  tbupload export --experiment ID --format events --output DIR  event files, to open in TensorBoard
  tbupload export --all --format events --output DIR            every experiment, each in DIR/ID
  tbupload export --experiment ID --hparams FILE.csv            hyperparameters and last metrics

Exports every point. Run the same command again to resume an interrupted export; a complete one is
not repeated. DIR must be new, empty, or contain this same export. The list of series is read once,
when the export begins; each series contains the points that are stored when it is read.

Event files contain everything that was logged: uploading them again creates the same series. A run
with a name that is not a valid path (for example ../x) goes to a directory named %DIGEST, and
control characters are percent-encoded (%1B); the manifest lists the original names.

Parquet and CSV have one row per point, and the tables experiment, properties, runs, series (with
their summary metadata), sessions, hparams and blobs; the bytes of blobs are below files/, where the
table of blobs says. With filters, runs, series and blobs are those that they accept, and the tables
of sessions are left out. Points and blobs whose bytes the server has lost are left out and listed.

--hparams exports only the table of sessions (runs with hyperparameters), instead of --output: a row
per session, with run, group, status, start_time, end_time, model_uri, monitor_url, hparams.NAME and
metrics.GROUP/TAG (last values). It needs --experiment, and takes neither --format nor filters. FILE
must not exist; it appears when it is complete, and an interrupted export begins again. Parquet
needs pyarrow. A column with values of several types is text in CSV and Parquet; in JSON each value
keeps its type, and a missing one is left out.

exit codes: 0 complete; 1 failed, or points are missing; 2 wrong usage; 75 server unavailable: run
the same command again.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of an export."""
    experiments = command.add_mutually_exclusive_group(required=True)
    experiments.add_argument("--experiment", metavar="ID", help="the experiment's ID or URL")
    experiments.add_argument(
        "--all", action="store_true", help="every experiment of the token's workspace"
    )
    command.add_argument(
        "--format",
        choices=("parquet", "csv", "events"),
        help=f"the format of the files (default: {DEFAULT_FORMAT})",
    )
    command.add_argument(
        "--attempt",
        metavar="K",
        type=number_parser("the number of an attempt, 1 or greater", 1),
        help="export restarted runs as they were just before their attempt K+1 began; "
        "`tbupload show` lists the attempts",
    )
    outputs = command.add_mutually_exclusive_group(required=True)
    outputs.add_argument("--output", metavar="DIR", type=Path, help="the directory to write to")
    outputs.add_argument(
        "--hparams",
        metavar="FILE",
        type=Path,
        help="write only the table of sessions, to FILE.csv, FILE.parquet or FILE.json",
    )
    add_series_filter(command, "to export")
    add_retry_timeout(command, None, f"{READ_RETRY_TIMEOUT_SECONDS:g}")
