"""Options of `tbupload tail`."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import (
    add_experiment,
    add_retry_timeout,
    add_series_filter,
)

EPILOG: Final = """\
examples:
  tbupload tail ID                            one line per new scalar, until Ctrl-C
  tbupload tail ID --from-start --json        all stored scalars, then new ones, one object per line
  tbupload tail ID --include-tags '.*loss'    only some series
  tbupload tail ID --kind tensors             histograms, texts and other tensors

After a lost connection, tail resumes after the last point that it received. If a restarted job
replaces points, their series is printed again from the first replaced step.

exit codes: 0 stopped with Ctrl-C; 1 the experiment was deleted, or the token is no longer valid; 2
wrong usage; 75 the server was unavailable for longer than --retry-timeout.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of a live tail."""
    add_experiment(command)
    command.add_argument(
        "--from-start", action="store_true", help="print the points stored so far first"
    )
    command.add_argument(
        "--kind",
        choices=("scalars", "tensors", "blob_sequences"),
        default="scalars",
        help="the data class to print (default: %(default)s)",
    )
    add_series_filter(command, "to print")
    add_retry_timeout(command, None, "unlimited")
