"""The commands `health`, `workspace show` and `user show` of `tbservice`, which print JSON.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tbservice.cli_commands import Commands, add_act, add_command, parse_workspace_id

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tbservice.settings import Settings


def add_health(commands: Commands) -> None:
    """Add `tbservice health`."""
    text = (
        "print the state of database, bucket and nodes, versions, the last backup, and what was "
        "refused, as JSON: exit code 0 all is well, 1 there are problems, 2 could not run"
    )
    health = add_command(commands, "health", _health, text, failure_code=2)
    health.add_argument(
        "--server",
        metavar="URL",
        help="a host of the running service, which knows what it refused (default: the public URL)",
    )


def add_workspace_show(places: Commands) -> None:
    """Add `tbservice workspace show`."""
    text = (
        "print a workspace as JSON: members, tokens, links, quota, and usage by month, member and "
        "experiment"
    )
    show = add_act(places, "show", _show_workspace, text)
    show.add_argument("workspace", type=parse_workspace_id, metavar="ID", help="the workspace's id")


def add_user_show(people: Commands, person: str) -> None:
    """Add `tbservice user show`; `person` explains its argument."""
    text = (
        "print a person as JSON: state, workspaces, browser sessions, tokens, and requests by month"
    )
    add_act(people, "show", _show_user, text).add_argument("person", metavar="PERSON", help=person)


def _health(options: argparse.Namespace, settings: Settings) -> int:
    from tbservice.server.overviews import describe_service

    shown = describe_service(settings, options.server or settings.public_url)
    print(json.dumps(shown, indent=2))
    return 1 if shown["problems"] else 0


def _show_workspace(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.server.overviews import describe_workspace
    from tbservice.types.identifiers import WorkspaceId

    yield json.dumps(describe_workspace(db, WorkspaceId(options.workspace)), indent=2)


def _show_user(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.server.overviews import describe_person

    yield json.dumps(describe_person(db, options.person), indent=2)
