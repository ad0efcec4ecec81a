"""The command `tbupload share`: make links to an experiment; list, rename and revoke them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tbupload.commands.connect import make_transport, progress_from_options
from tbupload.commands.experiment_address import resolve_experiment_id
from tbupload.commands.experiment_text import SECONDS_FORM, time_text
from tbupload.commands.expiry import expiry_field
from tbupload.commands.token_lines import expiry_text, print_token
from tbupload.console.output import print_message, print_result
from tbupload.errors import Refused, UsageError
from tbupload.http.client import Client
from tbupload.http.response_schema import Json
from tbupload.http.share_links import ShareLinks
from tbupload.upload.filter_check import matches_none

_NOT_FOUND: Final = 404

_ARGUMENTS: Final = {
    "list": ("ID",),
    "rename": ("ID", "LINK_ID", "LABEL"),
    "revoke": ("ID", "LINK_ID"),
}
"""Argument that follows each action; without an action, an experiment."""


def share(options: argparse.Namespace) -> int:
    """Run `tbupload share ID`, which prints a new link, or an action on the links there are."""
    action, arguments = _parse(options)
    transport = make_transport(options)
    client = Client(transport)
    experiment_id = resolve_experiment_id(arguments[0], client)
    links = ShareLinks(transport, experiment_id)
    if action == "list":
        for link in links.list():
            _print_link(link, options)
    elif action == "rename":
        with _named(experiment_id, arguments[1]):
            _print_link(links.rename(arguments[1], arguments[2]), options)
    elif action == "revoke":
        with _named(experiment_id, arguments[1]):
            links.revoke(arguments[1])
        print_message(f"revoked {arguments[1]}")
    elif options.list:
        _list_all(links, client, experiment_id, options)
    elif options.revoke is not None:
        with _named(experiment_id, options.revoke):
            _revoke_any(links, client, experiment_id, options)
    else:
        _make_link(links, options)
        if options.runs is not None:
            _warn_of_nothing(client.list_runs(experiment_id), options)
    return 0


def _parse(options: argparse.Namespace) -> tuple[str | None, Sequence[str]]:
    """Return the action, if any, and what follows it. Raises UsageError."""
    action = options.words[0] if options.words[0] in _ARGUMENTS else None
    arguments = options.words if action is None else options.words[1:]
    expected = ("ID",) if action is None else _ARGUMENTS[action]
    if len(arguments) != len(expected):
        usage = " ".join(["tbupload share", *([action] if action else []), *expected])
        raise UsageError(f"expected: {usage}")
    if action is not None and (_fields(options) or options.list or options.revoke):
        raise UsageError(f"'share {action}' takes no options of a new link")
    return action, arguments


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the options say of a new link."""
    fields: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("label", "runs", "tags")
        if getattr(options, name) is not None
    }
    for name in ("runs", "tags"):
        if fields.get(name) == "":  # as of a variable that is not set
            raise UsageError(f"--{name} is empty, which would show nothing: leave it out for all")
    fields |= {name: True for name in ("anonymous", "frozen") if getattr(options, name)}
    if options.expires is not None:
        fields["expires_at"] = expiry_field(options.expires)
    return fields


def _make_link(links: ShareLinks, options: argparse.Namespace) -> None:
    link = links.create(_fields(options))
    print_result(link, link["url"], is_json=options.json)


def _warn_of_nothing(runs: Sequence[str], options: argparse.Namespace) -> None:
    """Say that a link's pattern matches no run that is there; it may match later ones."""
    try:
        pattern = re.compile(options.runs)
    except re.error:  # the server took it: RE2 knows some forms that Python does not
        return
    if not any(map(pattern.fullmatch, runs)):
        reason = matches_none(pattern, sorted(runs), "runs")
        progress_from_options(options).warn(f"the link shows nothing yet: {options.runs} {reason}")


def _list_all(
    links: ShareLinks, client: Client, experiment_id: str, options: argparse.Namespace
) -> None:
    """Print the links, and then the experiment's other tokens."""
    for link in links.list():
        _print_link(link, options)
    for token in client.list_tokens(experiment_id):
        print_token(token, is_json=options.json)


def _revoke_any(
    links: ShareLinks, client: Client, experiment_id: str, options: argparse.Namespace
) -> None:
    """Revoke the link or the token with this id."""
    try:
        links.revoke(options.revoke)
    except Refused as refusal:
        if refusal.status != _NOT_FOUND:
            raise
        client.revoke_token(experiment_id, options.revoke)
    print_message(f"revoked {options.revoke}")


@contextmanager
def _named(experiment_id: str, link_id: str) -> Iterator[None]:
    """Say how to find the ID of a link if the one that is used in the block is none.

    Raises UsageError for what is no ID, without repeating it: it may be the secret.
    """
    advice = f"`tbupload share list {experiment_id}` lists their IDs"
    if re.fullmatch("[0-9A-Za-z]{1,100}", link_id) is None:
        raise UsageError(f"a link is named by its ID, and not by its address or secret: {advice}")
    try:
        yield
    except Refused as refusal:
        if refusal.status != _NOT_FOUND or not refusal.code:
            raise
        raise Refused(
            f"there is no link or token {link_id}, or no such experiment: {advice} ({refusal})",
            status=refusal.status,
            code=refusal.code,
        ) from refusal


def _print_link(link: Json, options: argparse.Namespace) -> None:
    """Print a link's id, beginning, what it shows, last use, expiry and label."""
    shown = [f"{name} {link[name]}" for name in ("runs", "tags") if link[name] is not None]
    shown += [name for name in ("anonymous", "frozen") if link[name]]
    state = "revoked" if link["revoked_at"] else expiry_text(link["expires_at"])
    last = link["last_used_at"]
    used = f"used {time_text(last, SECONDS_FORM)}" if last else "never used"
    columns = (
        link["id"],
        f"{link['prefix']}…",
        ", ".join(shown) or "everything",
        used,
        state,
        link["label"],
    )
    print_result(link, "  ".join(columns).rstrip(), is_json=options.json)
