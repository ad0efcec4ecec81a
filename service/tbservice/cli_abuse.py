"""The commands of `tbservice` against abuse: `suspend`, `release`, `suspensions` and `reports`.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tbservice.cli_commands import Commands, add_act, add_command, escape_controls, tab_line

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from tbservice.settings import Settings
    from tbservice.types.reports import PageReport

_KINDS = ("workspace", "person", "link", "experiment")


def add_suspensions(commands: Commands) -> None:
    """Add `tbservice suspend`, `release` and `suspensions`."""
    text = (
        "keep everybody out of a workspace, a person out of everything, or readers away from a "
        "share link, or from all that shares an experiment; nothing is deleted, and uploads to a "
        "suspended workspace are refused. Again with another reason: changes it"
    )
    suspend = add_command(commands, "suspend", _suspend, text)
    _add_subject(suspend)
    suspend.add_argument("--reason", required=True, metavar="TEXT", help="why: readers see it")
    text = "give back at once what a suspension took"
    _add_subject(add_act(commands, "release", _release, text))
    text = "print what is suspended, when and why, separated by tabs, the latest first"
    listing = add_act(commands, "suspensions", _list_suspensions, text)
    listing.add_argument("--json", action="store_true", help="as a JSON object a line")


def add_reports(commands: Commands) -> None:
    """Add `tbservice reports`."""
    text = "list, show and close what readers have reported of shared pages"
    group = commands.add_parser("reports", help=text, description=text)
    reports = group.add_subparsers(required=True, metavar="COMMAND")
    text = "print id, time, reason, workspace, experiment and link of open reports, oldest first"
    listing = add_act(reports, "list", _list_reports, text)
    listing.add_argument("--all", action="store_true", help="closed ones, too")
    listing.add_argument("--json", action="store_true", help="all of it, as a JSON object a line")
    show = add_act(reports, "show", _show_report, "print all of a report")
    show.add_argument("report", metavar="ID", help="the report's id")
    close = add_command(reports, "close", _close_reports, "close reports")
    close.add_argument("report", nargs="+", metavar="ID", help="the reports' ids")
    close.add_argument("--note", default="", metavar="TEXT", help="what was done, for operators")


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("subject", metavar="ID", help="its id; of a person, also the address")


def _suspend(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.auth import suspensions
    from tbservice.server.administration import open_database
    from tbservice.types.identifiers import UserId
    from tbservice.types.suspensions import Suspendable

    kind, ownerless = Suspendable(options.kind), []
    with open_database(settings) as database, database.transaction() as db:
        subject = suspensions.suspend(db, kind, options.subject, options.reason)
        if subject is not None and kind is Suspendable.PERSON:
            ownerless = suspensions.list_sole_ownerships(db, UserId(subject.object_id))
    what = f"{options.kind} {options.subject}"
    print(f"{what} is suspended" if subject else f"{what} was suspended for this reason already")
    for name in ownerless:
        print(f"tbservice: no other person owns the workspace {name!r} now", file=sys.stderr)


def _release(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import suspensions
    from tbservice.types.suspensions import Suspendable

    suspensions.release(db, Suspendable(options.kind), options.subject)
    yield f"{options.kind} {options.subject} is released"


def _list_suspensions(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.auth import suspensions

    for row in suspensions.list_suspended(db):
        kind, _, object_id = row.subject.partition("/")
        values = (kind, object_id, row.suspended_at.isoformat(), row.reason)
        names = ("kind", "id", "suspended_at", "reason")
        as_json = json.dumps(dict(zip(names, values, strict=True)))
        yield as_json if options.json else tab_line(values)


def _list_reports(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.experiments import reports

    columns = ("report_id", "reported_at", "reason", "workspace_id", "experiment_id", "link_id")
    for report in reports.list_reports(db, with_closed=options.all):
        described = _describe_report(report)
        line = tab_line(described[name] for name in columns)
        yield json.dumps(described) if options.json else line


def _show_report(options: argparse.Namespace, db: Connection) -> Iterator[str]:
    from tbservice.experiments import reports

    for name, content in _describe_report(reports.get_report(db, options.report)).items():
        # A text of several lines stays below its name: nobody writes a field into it.
        lines = "" if content is None else str(content)
        shown = "\n\t".join(map(escape_controls, lines.split("\n")))
        yield f"{name}\t{shown}"


def _describe_report(report: PageReport) -> dict[str, str | int | None]:
    """Return the fields of a report as JSON can say them."""
    closed_at = report.closed_at and report.closed_at.isoformat()
    moments = {"reported_at": report.reported_at.isoformat(), "closed_at": closed_at}
    return report._asdict() | moments


def _close_reports(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.experiments import reports
    from tbservice.server.administration import open_database

    with open_database(settings) as database:
        for report_id in options.report:
            with database.transaction() as db:
                reports.close_report(db, report_id, options.note)
            print(f"report {report_id} is closed")
