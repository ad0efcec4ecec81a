"""Options of `tbupload runs`."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import number_parser

RUNS_DEFAULT: Final = 100
"""Runs that `tbupload runs` prints by default."""

EPILOG: Final = """\
examples:
  tbupload runs                                            a table of all runs, newest first
  tbupload runs --where 'lr < 0.01 and optimizer = "adam" and loss.min < 0.3'
  tbupload runs --where 'experiment = "ID"' --sort -accuracy.max --limit 10
  tbupload runs --columns run,lr,loss,loss.min --csv > runs.csv
  tbupload runs --where 'status = "failure"' --json        one object per line
  tbupload runs --where 'tags = "best" and package.torch ~ "^2"' --columns run,gpus,package.torch
  tbupload runs --group-by optimizer --columns loss,accuracy.max
  tbupload runs --group-by=-seed --columns accuracy --format latex    all hyperparameters but seed
  tbupload runs --where 'lr < 0.01' --sort loss.min --limit 5 --tag best    tag the best five
  tbupload runs --where 'experiment = "ID" and loss.points < 10' --delete
  tbupload runs --list-columns                             what there is to choose

Where there is a directory `runs`, `tbupload runs` without one of these options uploads it.

A column is experiment, run, status, training, tags, started, host, gpus, git_commit and so on;
package.NAME, the version of a package; a hyperparameter; or a scalar tag, whose last value it is:
.min, .max, .last_step, .min_step, .max_step, .not_finite and .points follow the tag. Other names
are in backticks: `my tag`.min. Of texts, ~ searches a regular expression (RE2). A run without a
value in a column matches only `COLUMN is missing`.

Groups have the number of their runs, and of each column mean ± sample standard deviation (number of
runs with a value).
"""


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload runs`."""
    command.add_argument("--where", metavar="FILTER", default="", help="only runs that match this")
    command.add_argument(
        "--sort",
        metavar="COLUMN",
        type=_parse_sort,
        action="append",
        help="sort by a column, with `-` before it the greatest first; repeatable",
    )
    command.add_argument(
        "--columns",
        metavar="A,B",
        action="append",
        help="columns to print, repeatable (default: those that most runs have)",
    )
    command.add_argument(
        "--limit",
        metavar="N",
        type=number_parser("a number of runs"),
        help=f"print at most this many runs, 0 for all (default: {RUNS_DEFAULT}; all with --json "
        "and --csv)",
    )
    command.add_argument(
        "--csv", action="store_true", help="print comma-separated values with a header"
    )
    command.add_argument(
        "--format",
        choices=("markdown", "latex"),
        help="print a table to copy into a document",
    )
    command.add_argument(
        "--group-by",
        metavar="A,B",
        action="append",
        help="a row for each group of runs with equal values in these columns, repeatable: * means "
        "all hyperparameters, -NAME all but this one (as in --group-by=-seed)",
    )
    command.add_argument(
        "--run-pattern",
        metavar="RE",
        help="group by what the group of a regular expression (RE2) matches in the names of the "
        "runs, as in '^(.*)/seed'",
    )
    command.add_argument(
        "--list-columns", action="store_true", help="print the columns that runs have, and stop"
    )
    _add_changes(command)
    command.add_argument(
        "--workspace",
        metavar="ID",
        type=number_parser("the number of a workspace"),
        help="the workspace (default: the token's)",
    )


def _add_changes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tag",
        metavar="TAG",
        action="append",
        help="add a tag to the runs of --where, or the first --limit, and list none; repeatable",
    )
    command.add_argument(
        "--remove-tag", metavar="TAG", action="append", help="remove a tag from them; repeatable"
    )
    command.add_argument("--delete", action="store_true", help="delete them, at once and for good")
    command.add_argument(
        "--yes",
        "-y",
        action="store_true",
        help="do not ask whether to delete; required without a terminal",
    )


def _parse_sort(text: str) -> str:
    if not text.removeprefix("-"):
        raise argparse.ArgumentTypeError("name a column")
    return text
