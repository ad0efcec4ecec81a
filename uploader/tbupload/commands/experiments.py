"""The commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tbupload.commands.connect import find_experiment_id, make_client
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.console.output import print_json, print_line, print_message
from tbupload.errors import UsageError
from tbupload.http.client import Client


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
    """Run `tbupload show ID`: print the fields of an experiment, one per line."""
    _print_experiment(
        make_client(options).get_experiment(find_experiment_id(options.experiment)), options
    )
    return 0


def update_metadata(options: argparse.Namespace) -> int:
    """Run `tbupload update-metadata ID`: change the fields for which there are options."""
    names = ("name", "description", "visibility")
    fields = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if not fields:
        raise UsageError("nothing to change: give --name, --description or --visibility")
    _print_experiment(
        make_client(options).update_experiment(find_experiment_id(options.experiment), fields),
        options,
    )
    return 0


def delete(options: argparse.Namespace) -> int:
    """Run `tbupload delete ID`: ask for confirmation on a terminal, require --yes elsewhere."""
    experiment_id = find_experiment_id(options.experiment)
    if not options.yes and not sys.stdin.isatty():
        raise UsageError("without a terminal to ask on, deleting requires --yes")
    client = make_client(options)
    if not options.yes and not _is_confirmed(client, experiment_id):
        return EXIT_FAILED
    client.delete_experiment(experiment_id)
    if options.json:
        print_json({"event": "deleted", "experiment_id": experiment_id})
    else:
        print_line(f"deleted {experiment_id}")
    return 0


def _is_confirmed(client: Client, experiment_id: str) -> bool:
    name = client.get_experiment(experiment_id)["name"]
    print_message(
        f"Delete experiment {experiment_id} ({name or 'unnamed'}) and all its data? [y/N] ",
        end="",
    )
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _print_experiment(experiment: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print_json(experiment)
    else:
        for name, value in experiment.items():
            print_line(f"{name}: {value}")
