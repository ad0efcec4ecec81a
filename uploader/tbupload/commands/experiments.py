"""The commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse

from tbupload.commands.connect import find_experiment_id, make_client
from tbupload.commands.metadata import print_experiment
from tbupload.console.output import print_json, print_line, print_message
from tbupload.errors import Refused
from tbupload.http.client import Client
from tbupload.http.response_schema import Json


def list_experiments(options: argparse.Namespace) -> int:
    """Run `tbupload list`: print one line per experiment."""
    for experiment in make_client(options).list_experiments(options.query):
        if options.json:
            print_json(experiment)
        else:
            print_line(
                "  ".join(
                    experiment[key] for key in ("experiment_id", "created_at", "url", "name")
                ).rstrip()
            )
    return 0


def create(options: argparse.Namespace) -> int:
    """Run `tbupload create --name NAME`: print the URL of the experiment of this name."""
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
    """Run `tbupload show ID`: print the fields of an experiment, and its uploads, one per line."""
    client, experiment_id = make_client(options), find_experiment_id(options.experiment)
    experiment = client.get_experiment(experiment_id)
    uploads = _list_uploads(client, experiment_id)
    print_experiment({**experiment, "uploads": uploads} if options.json else experiment, options)
    if not options.json:
        for upload in uploads:
            print_line(_upload_line(upload))
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
    times = f"started {upload['started_at']}"
    if upload["ended_at"] is not None:
        times += f", ended {upload['ended_at']}"
    host = upload["origin"].get("host", "unnamed machine")
    return f"upload {upload['upload_id'][:8]}: {upload['status_of']} {status}, {times}, on {host}"
