"""Where the server and the token come from: the command line, the environment, the config file, in that order."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import tomllib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tbupload.errors import UsageError
from tbupload.http.connection_pool import is_loopback


@dataclass(frozen=True, slots=True)
class Config:
    """What the config file holds; a token belongs to the server beside it and is sent to no other."""

    server: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The server to speak to and the token to show it, with what a person should be warned of."""

    server: str
    token: str | None
    warnings: tuple[str, ...] = ()


def config_path(environment: Mapping[str, str]) -> Path:
    """TBHUB_CONFIG, else tbhub/config.toml among the user's configurations: `~/.config`, or XDG_CONFIG_HOME."""
    override = environment.get("TBHUB_CONFIG")
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(override) if override else Path(base, "tbhub", "config.toml")


def read_config(path: Path) -> Config:
    """The config file's content; empty when there is none. Raises UsageError when it cannot be understood."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Config()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    for key in ("server", "token"):
        if not isinstance(content.get(key, ""), str):
            raise UsageError(f"{path}: {key} has to be a string")
    return Config(content.get("server"), content.get("token"))


def write_config(path: Path, config: Config) -> None:
    """Writes the config file whole or not at all, readable by its owner only."""
    lines = [
        f"{key} = {json.dumps(value)}\n"
        for key, value in (("server", config.server), ("token", config.token))
        if value
    ]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(
        dir=path.parent, prefix=f".{path.name}."
    )  # made with mode 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(lines)
    Path(name).replace(path)


def find_access(
    server: str | None, environment: Mapping[str, str], *, link: str | None = None
) -> Access:
    """The server and token in force; `server` is the flag's value, if it was given.

    `link` is the server that an experiment's URL names, which somebody else may have written: a token that is meant for
    another server is not sent there. Raises UsageError when no server is named, or what is named is no address.
    """
    path = config_path(environment)
    config = read_config(path)
    configured = environment.get("TBHUB_SERVER") or config.server
    chosen = server or link or configured
    if not chosen:
        raise UsageError(
            "no server: give --server URL, set TBHUB_SERVER, or run `tbupload login --server URL`"
        )
    address = check_server(chosen)
    warnings = []
    token = environment.get("TBHUB_TOKEN") or None
    if (
        token is not None
        and link
        and not server
        and configured
        and check_server(configured) != address
    ):
        warnings.append(
            f"the token of {configured} is not sent to {address}: give token=, or a share link"
        )
        token = None
    if token is None and config.token and config.server and check_server(config.server) == address:
        token = config.token
        if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            warnings.append(f"{path} holds a token and others can read it: run `chmod 600 {path}`")
    if token is not None:
        token = check_token(token)
        if address.startswith("http:") and not is_loopback(address):
            warnings.append(f"{address} is not https: whoever is on the way can read the token")
    return Access(address, token, tuple(warnings))


def check_server(server: str) -> str:
    """The server's address without a slash at its end; UsageError unless it is an http or https URL."""
    try:
        parts = urllib.parse.urlsplit(server.strip())
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(
            f"{server!r} is no server address; it should look like https://tbhub.example.org"
        )
    return urllib.parse.urlunsplit(parts).rstrip("/")


def check_token(token: str) -> str:
    """The token without white space around it; UsageError when it cannot be one, without repeating it."""
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token is empty or has characters no token has")
    return token
