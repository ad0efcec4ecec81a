"""The commands of `tbservice` against abuse: `suspend`, `release`, `suspensions` and `reports`.

Imports only the standard library, as `tbservice.cli` does.
"""
# ruff: noqa: PLC0415, T201 - each command imports what it needs, and prints its answer

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tbservice.cli_administration import add_command

if TYPE_CHECKING:
    from tbservice.settings import Settings

_Commands = Any  # the type of `add_subparsers` has no public name

_KINDS = ("workspace", "person", "link", "experiment")


def add_suspensions(commands: _Commands) -> None:
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
    _add_subject(add_command(commands, "release", _release, text))
    text = "print what is suspended, when and why, separated by tabs, the latest first"
    listing = add_command(commands, "suspensions", _list_suspensions, text)
    listing.add_argument("--json", action="store_true", help="as a JSON object a line")


def add_reports(commands: _Commands) -> None:
    """Add `tbservice reports`."""
    text = "list, show and close what readers have reported of shared pages"
    group = commands.add_parser("reports", help=text, description=text)
    reports = group.add_subparsers(required=True, metavar="COMMAND")
    text = "print id, time, reason, workspace, experiment and link of open reports, oldest first"
    listing = add_command(reports, "list", _list_reports, text)
    listing.add_argument("--all", action="store_true", help="closed ones, too")
    listing.add_argument("--json", action="store_true", help="all of it, as a JSON object a line")
    show = add_command(reports, "show", _show_report, "print all of a report")
    show.add_argument("report", metavar="ID", help="the report's id")
    close = add_command(reports, "close", _close_reports, "close reports")
    close.add_argument("report", nargs="+", metavar="ID", help="the reports' ids")
    close.add_argument("--note", default="", metavar="TEXT", help="what was done, for operators")


def _add_subject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=_KINDS)
    parser.add_argument("subject", metavar="ID", help="its id; of a person, also the address")


def _suspend(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import suspend

    subject, ownerless = suspend(settings, options.kind, options.subject, options.reason)
    what = f"{options.kind} {options.subject}"
    print(f"{what} is suspended" if subject else f"{what} was suspended for this reason already")
    for name in ownerless:
        print(f"tbservice: no other person owns the workspace {name!r} now", file=sys.stderr)


def _release(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import release

    release(settings, options.kind, options.subject)
    print(f"{options.kind} {options.subject} is released")


def _list_suspensions(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import read_suspensions

    for row in read_suspensions(settings):
        kind, _, object_id = row.subject.partition("/")
        values = (kind, object_id, row.suspended_at.isoformat(), row.reason)
        names = ("kind", "id", "suspended_at", "reason")
        as_json = json.dumps(dict(zip(names, values, strict=True)))
        print(as_json if options.json else "\t".join(values))


def _list_reports(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import describe_report, read_reports

    columns = ("report_id", "reported_at", "reason", "workspace_id", "experiment_id", "link_id")
    for report in read_reports(settings, with_closed=options.all):
        described = describe_report(report)
        line = "\t".join(str(described[name]) for name in columns)
        print(json.dumps(described) if options.json else line)


def _show_report(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import describe_report, read_report

    for name, content in describe_report(read_report(settings, options.report)).items():
        # A text of several lines stays below its name: nobody writes a field into it.
        shown = "" if content is None else str(content).replace("\n", "\n\t")
        print(f"{name}\t{shown}")


def _close_reports(options: argparse.Namespace, settings: Settings) -> None:
    from tbservice.server.abuse_administration import close_report

    for report_id in options.report:
        close_report(settings, report_id, options.note)
        print(f"report {report_id} is closed")
