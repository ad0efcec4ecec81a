"""Server address and token: from the command line, the environment, or the config file."""

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
    """Content of the config file; the token belongs to `server` and is sent to no other."""

    server: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """The server to use, the token to send to it, and warnings to show to the user."""

    server: str
    token: str | None
    warnings: tuple[str, ...] = ()


def config_path(environment: Mapping[str, str]) -> Path:
    """Return TBHUB_CONFIG, or `tbhub/config.toml` in XDG_CONFIG_HOME (by default `~/.config`)."""
    override = environment.get("TBHUB_CONFIG")
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(override) if override else Path(base, "tbhub", "config.toml")


def read_config(path: Path) -> Config:
    """Return the config file's content, empty if there is no file. Raise UsageError if invalid."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Config()
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from error
    for key in ("server", "token"):
        if not isinstance(content.get(key, ""), str):
            raise UsageError(f"{path}: {key} must be a string")
    return Config(content.get("server"), content.get("token"))


def write_config(path: Path, config: Config) -> None:
    """Write the config file atomically (temporary file and rename), readable by its owner only."""
    lines = [
        f"{key} = {json.dumps(value)}\n"
        for key, value in (("server", config.server), ("token", config.token))
        if value
    ]
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp creates the file with mode 0600.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(lines)
    Path(name).replace(path)


def find_access(
    server: str | None, environment: Mapping[str, str], *, link: str | None = None
) -> Access:
    """Return the server to use, and the token for it.

    Args:
        server: the value of `--server`, or None.
        environment: the environment variables.
        link: the server of an experiment's URL. Someone else may have written that URL, so the
            token of another server is never sent there.

    Raises:
        UsageError: no server is configured, or an address or token is malformed.
    """
    path = config_path(environment)
    config = read_config(path)
    configured = environment.get("TBHUB_SERVER") or config.server
    named = server or link or configured
    if not named:
        raise UsageError(
            "no server: give --server URL, set TBHUB_SERVER, or run `tbupload login --server URL`"
        )
    address = check_server(named)

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
            f"the token of {configured} is not sent to {address}: pass token=, or use a share link"
        )
        token = None

    if token is None and config.token and config.server and check_server(config.server) == address:
        token = config.token
        if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            warnings.append(
                f"{path} contains a token and other users can read it: run `chmod 600 {path}`"
            )

    if token is not None:
        token = check_token(token)
        if address.startswith("http:") and not is_loopback(address):
            warnings.append(
                f"{address} is not https: anyone on the network path can read the token"
            )
    return Access(address, token, tuple(warnings))


def check_server(server: str) -> str:
    """Return the address without a trailing slash. Raise UsageError if it is no http(s) URL."""
    try:
        parts = urllib.parse.urlsplit(server.strip())
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment or parts.username is not None:
        raise UsageError(
            f"{server!r} is not a server address; it should look like https://tbhub.example.org"
        )
    return urllib.parse.urlunsplit(parts).rstrip("/")


def check_token(token: str) -> str:
    """Return the token without surrounding white space. Raise UsageError if it is malformed.

    The message does not contain the token.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token is empty or contains invalid characters")
    return token
