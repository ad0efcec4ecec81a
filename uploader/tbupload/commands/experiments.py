"""The commands on experiments and their tokens (list, show, share and so on), and `login`."""

from __future__ import annotations

import argparse
import getpass
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tbupload.commands.connect import (
    SHORT_RETRY_TIMEOUT_SECONDS,
    client_from_access,
    find_experiment_id,
    make_client,
    progress_from_options,
)
from tbupload.commands.metadata import print_experiment
from tbupload.config import Access, Config, check_token, config_path, find_access, write_config
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.terminal import escape
from tbupload.errors import Refused, UsageError
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy

EXPIRY_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

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
    print_experiment(
        make_client(options).get_experiment(find_experiment_id(options.experiment)), options
    )
    return 0


def share(options: argparse.Namespace) -> int:
    """Run `tbupload share ID`: print a link with a new read token, or list or revoke tokens."""
    experiment_id = find_experiment_id(options.experiment)
    if options.list:
        for token in make_client(options).list_tokens(experiment_id):
            _print_token(token, options)
    elif options.revoke is not None:
        make_client(options).revoke_token(experiment_id, options.revoke)
        print_message(f"revoked {options.revoke}")
    else:
        _make_link(experiment_id, options)
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


def expiry(text: str, now: datetime) -> datetime:
    """Return `now` plus a duration such as "30d" (m, h, d or w). Raise UsageError if malformed."""
    match = re.fullmatch(r"([1-9][0-9]{0,4})([mhdw])", text)
    if match is None:
        raise UsageError(
            f"--expires {text!r}: expected a number followed by m, h, d or w, for example 30d"
        )
    return now + timedelta(**{EXPIRY_UNITS[match[2]]: int(match[1])})


def _make_link(experiment_id: str, options: argparse.Namespace) -> None:
    fields: dict[str, Any] = {"scopes": ["read"]}
    if options.label is not None:
        fields["label"] = options.label
    if options.expires is not None:
        fields["expires_at"] = expiry(options.expires, datetime.now(UTC)).isoformat()
    client = make_client(options)
    url = client.get_experiment(experiment_id)["url"]
    token = client.create_token(experiment_id, fields)
    link = f"{url}?token={token['token']}"
    if options.json:
        print_json({**token, "url": link})
    else:
        print_line(link)


def _check_accepted(client: Client) -> None:
    """Raise Refused if the server does not accept the token.

    403 is accepted: a token of a single experiment is valid, but may not list experiments.
    """
    try:
        next(client.list_experiments(), None)
    except Refused as refusal:
        if refusal.status != FORBIDDEN:
            raise


def _read_token(server: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(escape(f"token for {server} (not shown while you type): "))
    return sys.stdin.readline()


def _print_token(token: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print_json(token)
        return
    state = "revoked" if token["revoked_at"] else f"expires {token['expires_at'] or 'never'}"
    print_line(
        "  ".join(
            (token["id"], ",".join(token["scopes"]), f"{token['prefix']}…", state, token["label"])
        )
    )
