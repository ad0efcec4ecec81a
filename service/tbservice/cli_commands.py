"""Common parts of the commands of `tbservice`: the service they work on, and its database.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tbservice.settings import Settings

Commands = Any  # the type of `add_subparsers` has no public name


def add_data_dir(parser: argparse.ArgumentParser, state: str = "running or not") -> None:
    """Add the option --data-dir, which every command has that works on a service's database."""
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"the data directory of 'tbservice up', {state}, instead of TBHUB_* settings",
    )


def add_command(
    commands: Commands,
    name: str,
    command: Callable[[argparse.Namespace, Settings], int | None],
    text: str,
    failure_code: int = 1,
) -> argparse.ArgumentParser:
    """Add a command that works on the service of --data-dir, or of the settings.

    It returns its exit code, None for 0; `failure_code` is that of a command that could not run.
    """

    def run(options: argparse.Namespace) -> int | None:
        from tbservice.audit.acting import begin_command
        from tbservice.server.command_settings import open_settings

        with open_settings(options.data_dir) as settings:
            begin_command(parser.prog)
            return command(options, settings)

    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    add_data_dir(parser)
    parser.set_defaults(command=run, failure_code=failure_code)
    return parser


def add_act(
    commands: Commands,
    name: str,
    act: Callable[[argparse.Namespace, Connection], Iterable[str] | None],
    text: str,
) -> argparse.ArgumentParser:
    """Add a command that is one transaction, after which the lines of `act` are printed."""

    def run(options: argparse.Namespace, settings: Settings) -> None:
        from tbservice.server.administration import open_database

        with open_database(settings) as database, database.transaction() as db:
            lines = list(act(options, db) or ())
        for line in lines:
            print(line)

    return add_command(commands, name, run, text)


def tab_line(values: Iterable[object]) -> str:
    r"""Return a line of values with tabs between them.

    Characters that control a terminal, reorder what it shows or end a line (names are of people who
    are not trusted) become escapes, such as `\x1b` and `\u202e`.
    """
    return "\t".join(map(escape_controls, values))


def escape_controls(value: object) -> str:
    """Return a value as text for one line of a terminal, as `tab_line`."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def parse_workspace_id(text: str) -> int:
    """Return the id of a workspace that an option names."""
    if not text.isdecimal() or not 0 < int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not the id of a workspace")
    return int(text)
