"""The commands on experiments: list, show and so on."""

from __future__ import annotations

import argparse

from tbupload.commands.connect import find_experiment_id, make_client
from tbupload.commands.metadata import print_experiment
from tbupload.console.output import print_json, print_line, print_message


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
    print_experiment(
        make_client(options).get_experiment(find_experiment_id(options.experiment)), options
    )
    return 0
