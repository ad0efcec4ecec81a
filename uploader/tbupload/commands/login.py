"""The commands `login`, `logout` and `whoami`."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tbupload
from tbupload.commands.connect import (
    access_from_options,
    progress_from_options,
    reading_policy,
    transport_from_access,
)
from tbupload.commands.experiment_text import SECONDS_FORM, time_text
from tbupload.commands.token_lines import expiry_text
from tbupload.config import (
    Access,
    Config,
    Profile,
    check_server,
    check_token,
    config_path,
    read_config,
    write_config,
)
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.terminal import escape
from tbupload.errors import Refused, Unreachable, UsageError
from tbupload.http.account import AccountClient
from tbupload.http.client import Client
from tbupload.http.response_schema import Json
from tbupload.http.transport import Transport

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CLIENT_CHARS_MAX: Final = 200


def login(options: argparse.Namespace) -> int:
    """Run `tbupload login`: get a token, and store it with its server in the config file.

    On a terminal a person approves it in a browser; otherwise the token is read from stdin.
    """
    path = config_path(os.environ)
    config = read_config(path)
    name = _profile_name(options)
    server = _find_server(options, config, name)

    if options.web or (sys.stdin.isatty() and not options.with_token):
        answer = _log_in_by_browser(server, options)
        profile = Profile(server, check_token(answer["token"]), is_from_browser=True)
        who = f" as {answer['person']} in {answer['workspace_name']}, {_describe_rights(answer)}"
    else:
        profile = Profile(server, check_token(_read_token(server)))
        _check_accepted(Client(_transport(profile, options)))
        who = ""
    write_config(path, config.replace(name, profile))
    print_message(f"logged in to {server}{who}; stored in {path}")
    return 0


def logout(options: argparse.Namespace) -> int:
    """Run `tbupload logout`: remove a profile's token; revoke it if `login` made it."""
    path = config_path(os.environ)
    config = read_config(path)
    name = _profile_name(options)
    if options.server:
        name = _find_profile_of(options.server, config, [name] if options.profile else None, path)
    profile = config.find(name)
    if profile is None or not profile.token:
        raise UsageError(f"{path} has no token to remove")

    if profile.is_from_browser:
        _revoke(profile, options)
    kept = Profile(profile.server) if name is None else None
    write_config(path, config.replace(name, kept))
    print_message(f"logged out of {profile.server}; {path} has its token no more")
    return 0


def whoami(options: argparse.Namespace) -> int:
    """Run `tbupload whoami`: print whom the token acts for, where, and what it may do."""
    progress = progress_from_options(options)
    access = access_from_options(options, progress)
    if access.token is None:
        raise UsageError(f"not logged in to {access.server}: run `tbupload login`")
    transport = transport_from_access(access, options, reading_policy(), progress)
    me = AccountClient(transport).get_me()
    if options.json:
        print_json({"server": transport.server, **me})
        return 0
    person, token, workspace = me["person"], me["token"], me["workspace"]
    lines = {
        "server": transport.server,
        "person": _describe_person(person) if person else _describe_nobody(workspace),
        "workspace": f"{workspace['name']} ({workspace['workspace_id']})" if workspace else None,
        "role": workspace.get("role") if workspace else None,
        "token": f"{token['id'] or ''} {token['label'] or ''}".strip() or None,
        "experiment": token.get("experiment_id"),
        "scopes": ", ".join(token["scopes"]),
        "expires": time_text(token["expires_at"], SECONDS_FORM)
        if token.get("expires_at")
        else "never",
    }
    for key, value in lines.items():
        if value is not None:
            print_line(f"{key}: {value}")
    return 0


def _describe_person(person: Mapping[str, str]) -> str:
    """Return name and address; who joined by a link may have none."""
    return f"{person['name']} <{person['email']}>" if person["email"] else person["name"]


def _describe_nobody(workspace: object) -> str:
    return "none (a machine's token)" if workspace else "none (a share link)"


def _profile_name(options: argparse.Namespace) -> str | None:
    return options.profile or os.environ.get("TBHUB_PROFILE") or None


def _find_profile_of(
    server: str, config: Config, names: list[str | None] | None, path: Path
) -> str | None:
    """Return the first of the profiles, by default of all, that has a token of the server.

    Raises UsageError if there is none: the token of another server stays.
    """
    address = check_server(server)
    for name in names or [None, *config.profiles]:
        profile = config.find(name) or Profile()
        if profile.token and profile.server and check_server(profile.server) == address:
            return name
    raise UsageError(f"{path} has no token of {address} to remove")


def _find_server(options: argparse.Namespace, config: Config, name: str | None) -> str:
    profile = config.find(name) or Profile()
    server = options.server or profile.server or os.environ.get("TBHUB_SERVER")
    if not server:
        raise UsageError("no server: give --server URL")
    return check_server(server)


def _log_in_by_browser(server: str, options: argparse.Namespace) -> Json:
    """Return the answer with the token that a person approved."""
    client = AccountClient(_transport(Profile(server), options))
    try:
        begun = client.begin_login(
            f"tbupload {tbupload.__version__} on {socket.gethostname()}"[:CLIENT_CHARS_MAX]
        )
    except Refused as refusal:
        if refusal.status != NOT_FOUND:
            raise
        raise UsageError(
            f"{server} has no login through a browser: run `tbupload login --with-token`"
        ) from refusal
    print_message(f"1. Open {begun['verification_uri']} in a browser, and sign in.")
    print_message(f"2. Type this code there: {begun['user_code']}")
    print_message("Waiting for your approval. Ctrl-C cancels.")
    return _wait_for_approval(client, begun)


def _wait_for_approval(client: AccountClient, begun: Json) -> Json:
    ends_at = time.monotonic() + begun["expires_in"]
    while time.monotonic() < ends_at:
        time.sleep(begun["interval"])
        try:
            answer = client.ask_for_token(begun["device_code"])
        except Unreachable as error:  # the login outlives a restart of the server
            print_message(f"tbupload: {error}; still waiting")
            continue
        if answer["status"] == "approved" and answer.get("token"):
            return answer
    raise UsageError("nobody approved the login in time: run the command again")


def _describe_rights(answer: dict[str, Any]) -> str:
    scopes = ", ".join(map(str, answer.get("scopes") or ()))
    return f"may {scopes}, {expiry_text(answer.get('expires_at'))}"


def _revoke(profile: Profile, options: argparse.Namespace) -> None:
    """Revoke a profile's token; a server that is away does not keep anyone from logging out."""
    try:
        AccountClient(_transport(profile, options)).revoke_this_token()
    except (Refused, Unreachable) as error:
        print_message(
            f"tbupload: warning: the token was not revoked ({error}): do it on the server's page"
        )


def _transport(profile: Profile, options: argparse.Namespace) -> Transport:
    assert profile.server is not None  # noqa: S101 - of a profile that has a token
    return transport_from_access(
        Access(profile.server, profile.token),
        options,
        reading_policy(),
        progress_from_options(options),
    )


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
    token = sys.stdin.readline()
    if not token.strip():
        raise UsageError(
            "no terminal, and no token on stdin: pipe one to `tbupload login --with-token`, or run "
            "`tbupload login --web`, whose address can be opened on any machine"
        )
    return token
