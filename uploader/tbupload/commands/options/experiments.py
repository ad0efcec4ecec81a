"""Options of the commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse
from typing import Final

from tbupload.commands.options.shared import (
    add_experiment,
    add_visibility,
    number_parser,
    parse_name,
)

LISTED_DEFAULT: Final = 100
"""Experiments that `tbupload list` prints by default."""

SORT_KEYS: Final = ("created", "updated", "name", "size", "status")
"""The orders that the server has."""

STATUSES: Final = ("running", "finished", "failed", "killed", "unknown", "silent")
"""The statuses of experiments."""


def add_create_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload create`."""
    command.add_argument(
        "--name",
        required=True,
        type=parse_name,
        help="its name; an experiment that has it already is not changed",
    )
    command.add_argument("--description", default="", help="its description, as Markdown")
    add_visibility(command)


def add_list_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload list`."""
    command.add_argument(
        "--query",
        metavar="WORDS",
        help="only experiments with words that begin like these, in name, tags, description, "
        "notes, properties, or of who created it",
    )
    command.add_argument(
        "--tag",
        action="append",
        help="only experiments with this tag; repeatable: with all of them",
    )
    command.add_argument(
        "--status",
        choices=STATUSES,
        action="append",
        help="only experiments with this status; repeatable: with one of them",
    )
    command.add_argument(
        "--starred", action="store_true", help="only experiments that you have starred"
    )
    command.add_argument(
        "--archived", action="store_true", help="list the archived experiments instead"
    )
    command.add_argument(
        "--sort",
        choices=SORT_KEYS,
        help="latest or largest first, names from A to Z; `updated` is when data arrived last, "
        "`status` begins with what is running (default: created)",
    )
    command.add_argument("--reverse", action="store_true", help="list them the other way round")
    command.add_argument(
        "--limit",
        metavar="N",
        type=number_parser("a number of experiments"),
        help=f"list at most this many, 0 for all (default: {LISTED_DEFAULT}; all with --json)",
    )


def add_show_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload show`."""
    add_experiment(command)


def add_open_options(command: argparse.ArgumentParser) -> None:
    """Add the options of `tbupload open`."""
    command.add_argument(
        "experiment",
        metavar="ID|NAME",
        help="the experiment's ID, the first characters of it, its URL, or its name",
    )
