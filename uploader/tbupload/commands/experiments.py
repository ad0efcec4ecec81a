"""The commands on experiments (list, show and so on), and `login`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from typing import Any, Final

from tbupload.commands.connect import (
    SHORT_RETRY_TIMEOUT_SECONDS,
    client_from_access,
    find_experiment_id,
    make_client,
    progress_from_options,
)
from tbupload.commands.exit_codes import EXIT_FAILED
from tbupload.config import Access, Config, check_token, config_path, find_access, write_config
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.terminal import escape
from tbupload.errors import Refused, UsageError
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy

FORBIDDEN: Final = 403


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


def login(options: argparse.Namespace) -> int:
    """Run `tbupload login`: check a token with its server, then store both in the config file."""
    server = find_access(options.server, os.environ).server
    token = check_token(_read_token(server))
    _check_accepted(
        client_from_access(
            Access(server, token),
            options,
            RetryPolicy(SHORT_RETRY_TIMEOUT_SECONDS),
            progress_from_options(options),
        )
    )
    path = config_path(os.environ)
    write_config(path, Config(server, token))
    print_message(f"stored {server} and its token in {path}")
    return 0


def _check_accepted(client: Client) -> None:
    """Raise Refused if the server does not accept the token.

    403 is accepted: a token of a single experiment is valid, but may not list experiments.
    """
    try:
        next(client.list_experiments(), None)
    except Refused as refusal:
        if refusal.status != FORBIDDEN:
            raise


def _is_confirmed(client: Client, experiment_id: str) -> bool:
    name = client.get_experiment(experiment_id)["name"]
    print_message(
        f"Delete experiment {experiment_id} ({name or 'unnamed'}) and all its data? [y/N] ",
        end="",
    )
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _read_token(server: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(escape(f"token for {server} (not shown while you type): "))
    return sys.stdin.readline()


def _print_experiment(experiment: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print_json(experiment)
    else:
        for name, value in experiment.items():
            print_line(f"{name}: {value}")
