"""The commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tbupload.commands.connect import make_client
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.experiment_text import (
    EXPIRING_DAYS,
    SECONDS_FORM,
    attempt_lines,
    expires_soon,
    list_cells,
    make_layout,
    time_text,
)
from tbupload.commands.metadata import print_experiment
from tbupload.commands.options.experiments import LISTED_DEFAULT
from tbupload.console.columns import has_colors, terminal_columns
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.texts import counted
from tbupload.errors import Refused, UsageError
from tbupload.http.client import Client
from tbupload.http.response_schema import Json

_UNKNOWN_FIELD: Final = 422
"""The status by which an older server refuses a field that it does not know."""


def list_experiments(options: argparse.Namespace) -> int:
    """Run `tbupload list`: print a header and one line per experiment, as the pages arrive."""
    default = 0 if options.json else LISTED_DEFAULT
    limit = (default if options.limit is None else options.limit) or sys.maxsize
    experiments = _find_experiments(options, limit + 1)
    layout = make_layout(terminal_columns(), options.sort, is_colored=has_colors(sys.stdout))
    count, expiring = 0, 0
    for experiment in itertools.islice(experiments, limit):
        expiring += expires_soon(experiment)
        if options.json:
            print_json(experiment)
        else:
            if not count and not options.quiet:
                print_line(layout.header())
            print_line(layout.line(list_cells(experiment)), is_escaped=True)
        count += 1

    if not options.quiet and next(experiments, None) is not None:
        print_message(f"{count:,} shown, and there are more; --limit 0 shows all")
    if expiring and not options.quiet:
        print_message(
            f"{counted(expiring, 'experiment')} will be deleted within {EXPIRING_DAYS} days: "
            "`tbupload show ID` says when, and `update-metadata ID --expires never` keeps one"
        )
    if not count and not options.quiet and not options.json:
        is_selected = any(
            (options.query, options.tag, options.status, options.starred, options.archived)
        )
        print_message(f"there are no experiments {'like that' if is_selected else 'yet'}")
    return 0


def _find_experiments(options: argparse.Namespace, count_max: int) -> Iterator[Json]:
    """Return the experiments that `tbupload list` selects, in its order.

    An older server cannot select by status: all that it lists are looked through.
    """
    selection: dict[str, str | Sequence[str]] = {}
    if options.tag:
        selection["tag"] = options.tag
    if options.sort is not None:
        selection["sort"] = options.sort
    if options.reverse:
        selection["reverse"] = "true"
    for name in ("starred", "archived"):
        if getattr(options, name):
            selection[name] = "true"
    client = make_client(options)
    if not options.status:
        return client.list_experiments(options.query, count_max=count_max, selection=selection)
    listed = client.list_experiments(
        options.query, count_max=count_max, selection={**selection, "status": options.status}
    )
    try:
        first = list(itertools.islice(listed, 1))
    except Refused as refusal:
        if refusal.status != _UNKNOWN_FIELD:
            raise
        first = []
        listed = client.list_experiments(options.query, count_max=sys.maxsize, selection=selection)
    return (each for each in itertools.chain(first, listed) if each.get("status") in options.status)


def create(options: argparse.Namespace) -> int:
    """Run `tbupload create --name NAME`: print the URL of the experiment of this name."""
    if not options.name.strip():
        raise UsageError("--name is empty")
    experiment, is_new = make_client(options).get_or_create_experiment(
        name=options.name,
        description=options.description,
        visibility=options.visibility or "private",
    )
    if options.json:
        print_json({"event": "created" if is_new else "exists", **experiment})
        return 0
    print_line(experiment["url"])
    if not is_new and not options.quiet:
        print_message("an experiment of this name exists; it was not changed")
    return 0


def show(options: argparse.Namespace) -> int:
    """Run `tbupload show ID`: print an experiment's fields, attempts and uploads, one per line."""
    client = make_client(options)
    experiment_id = resolve_experiment_id(options.experiment, client)
    experiment = client.get_experiment(experiment_id, has_details=True)
    attempts = client.list_attempts(experiment_id)
    uploads = _list_uploads(client, experiment_id)
    if options.json:
        more = {"attempts": attempts} if attempts else {}
        print_json({**experiment, **more, "uploads": uploads})
        return 0
    print_experiment(experiment, options)
    for line in (*attempt_lines(attempts), *map(_upload_line, uploads)):
        print_line(line)
    return 0


def _list_uploads(client: Client, experiment_id: str) -> list[Json]:
    """Return the recorded uploads; none from an older server, or of one that everyone may read."""
    try:
        return list(client.list_uploads(experiment_id))
    except Refused as refusal:
        if refusal.status not in {401, 403, 404}:
            raise
        return []


def _upload_line(upload: Json) -> str:
    status = f"{upload['status']} ({upload['detail']})" if upload["detail"] else upload["status"]
    times = f"started {time_text(upload['started_at'], SECONDS_FORM)}"
    if upload["ended_at"] is not None:
        times += f", ended {time_text(upload['ended_at'], SECONDS_FORM)}"
    host = upload["origin"].get("host", "unnamed machine")
    return f"upload {upload['upload_id'][:8]}: {upload['status_of']} {status}, {times}, on {host}"
