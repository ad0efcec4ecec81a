"""The two workspaces of a move: that of the token in use, and one of another profile."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import dataclass
from typing import Final

from tbupload.commands.connect import access_from_options, transport_from_access
from tbupload.config import Access, config_path, find_access, read_config
from tbupload.console.progress import ConsoleProgress
from tbupload.errors import Refused, UsageError
from tbupload.http.account import AccountClient
from tbupload.http.client import Client
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

_OF_TOKEN: Final = ("TBHUB_SERVER", "TBHUB_TOKEN", "TBHUB_PROFILE")


@dataclass(frozen=True)
class MoveWorkspace:
    """A workspace at a server, and the transport with a token that may do everything there."""

    transport: Transport
    client: Client
    workspace_id: int
    name: str

    @property
    def key(self) -> tuple[str, int]:
        """Return what tells it from every other workspace."""
        return self.transport.server, self.workspace_id


def open_source(options: argparse.Namespace, progress: ConsoleProgress) -> MoveWorkspace:
    """Return the workspace of the token in use. Raises UsageError for a token of no workspace."""
    return _open(access_from_options(options, progress), options, progress)


def open_target(
    options: argparse.Namespace, source: MoveWorkspace, progress: ConsoleProgress
) -> MoveWorkspace:
    """Return the workspace of `--to`: of the profile of that name, or else of any profile.

    Raises:
        UsageError: No profile is of that workspace, several are, or it is the source.
    """
    config = read_config(config_path(os.environ))
    is_profile = options.to in config.profiles
    names = [options.to] if is_profile else [None, *config.profiles]
    targets: dict[tuple[str, int], MoveWorkspace] = {}
    for name in names:
        try:
            opened = _open(_access_of(name), options, progress)
        except (Refused, UsageError):  # no token, or one that was revoked: another may be valid
            if is_profile:
                raise
            continue
        if is_profile or options.to in {opened.name, str(opened.workspace_id)}:
            targets.setdefault(opened.key, opened)

    others = [each for key, each in targets.items() if key != source.key]
    here = [each for each in others if each.transport.server == source.transport.server]
    if len(here or others) > 1:
        known = ", ".join(f"{each.workspace_id} at {each.transport.server}" for each in others)
        raise UsageError(f"several workspaces are called {options.to!r}: {known}; name a profile")
    if others:
        return (here or others)[0]
    if targets or options.to in {source.name, str(source.workspace_id)}:
        raise UsageError(f"the experiments are in the workspace {options.to!r} already")
    login = shlex.join(
        ["tbupload", "login", "--server", source.transport.server, "--profile", options.to]
    )
    raise UsageError(
        f"no profile of the config file has a token of the workspace {options.to!r}: run `{login}`,"
        " choose that workspace in the browser, and run this command again"
    )


def _access_of(profile: str | None) -> Access:
    """Return server and token of a profile, None for the default one, whatever is in use."""
    environment = {name: value for name, value in os.environ.items() if name not in _OF_TOKEN}
    return find_access(None, environment, profile=profile)


def _open(access: Access, options: argparse.Namespace, progress: ConsoleProgress) -> MoveWorkspace:
    policy = RetryPolicy(options.retry_timeout, refused_timeout_seconds=5.0)
    transport = transport_from_access(access, options, policy, progress)
    me = AccountClient(transport).get_me()
    workspace = me["workspace"]
    if workspace is None or "admin" not in me["token"]["scopes"]:
        raise UsageError(
            f"the token of {access.server} may not move experiments: it takes one of a whole "
            "workspace with the scope admin"
        )
    return MoveWorkspace(transport, Client(transport), workspace["workspace_id"], workspace["name"])
