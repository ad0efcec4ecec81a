"""Server address and token: from the command line, the environment, or the config file."""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tbupload.errors import OutputError, UsageError
from tbwire import config_file

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FROM_BROWSER: Final = "token_is_from_browser"
_NO_SERVER: Final = (
    "no server: give --server URL, set TBHUB_SERVER, or run `tbupload login --server URL`"
)


@dataclass(frozen=True)
class Profile:
    """A server and the token for it, which is sent to no other server.

    With `is_from_browser`, `tbupload login` made the token for this file alone: logging out revokes
    it.
    """

    server: str | None = None
    token: str | None = None
    is_from_browser: bool = False


@dataclass(frozen=True)
class Config:
    """Content of the config file: the profile that is used by default, and others by name.

    With `no_origin`, uploads record nothing of where they come from.
    """

    default: Profile = Profile()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    no_origin: bool = False

    def find(self, name: str | None) -> Profile | None:
        """Return the profile of this name, the default one for None; None if there is none."""
        return self.default if name is None else self.profiles.get(name)

    def replace(self, name: str | None, profile: Profile | None) -> Config:
        """Return the configuration with another profile of this name, without it for None."""
        if name is None:
            return replace(self, default=profile or Profile())
        others = {key: value for key, value in self.profiles.items() if key != name}
        return replace(self, profiles=others if profile is None else {**others, name: profile})


@dataclass(frozen=True)
class Access:
    """The server to use, the token to send to it, and warnings to show to the user."""

    server: str
    token: str | None
    warnings: tuple[str, ...] = ()


def config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the configuration file; raise UsageError if there is no home directory."""
    try:
        return config_file.config_path(environment)
    except RuntimeError as error:
        raise UsageError("there is no home directory: give TBHUB_CONFIG a full path") from error


def read_config(path: Path) -> Config:
    """Return the config file's content, empty if there is no file. Raise UsageError if invalid."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror} (TBHUB_CONFIG names another file)"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not a config file in TOML: {error}") from error
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise UsageError(f"{path}: profiles must be tables, such as [profiles.work]")
    return Config(
        _parse_profile(path, "", content),
        {
            name: _parse_profile(path, f"profiles.{name}: ", table)
            for name, table in profiles.items()
        },
        no_origin=_parse_flag(path, "no_origin", content),
    )


def _parse_flag(path: Path, key: str, content: dict[str, object]) -> bool:
    value = content.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(f"{path}: {key} must be true or false")
    return value


def _parse_profile(path: Path, place: str, table: object) -> Profile:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {place}must be a table")
    for key in ("server", "token"):
        if not isinstance(table.get(key, ""), str):
            raise UsageError(f"{path}: {place}{key} must be a string")
    return Profile(table.get("server"), table.get("token"), table.get(_FROM_BROWSER) is True)


def write_config(path: Path, config: Config) -> None:
    """Write the config file atomically (temporary file and rename), readable by its owner only.

    Raises OutputError.
    """
    lines = ["no_origin = true\n"] if config.no_origin else []
    lines += _format_profile(config.default)
    for name, profile in config.profiles.items():
        lines += ["\n", f"[profiles.{json.dumps(name)}]\n", *_format_profile(profile)]
    try:
        replace_file(path, lines)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror}. TBHUB_CONFIG names another file; "
            "TBHUB_SERVER and TBHUB_TOKEN need none"
        ) from error


def replace_file(path: Path, lines: Iterable[str]) -> None:
    """Write a file atomically, with mode 0600, and its directory if there is none."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp creates the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(lines)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _format_profile(profile: Profile) -> list[str]:
    """Return the lines of a profile; JSON strings are strings of TOML too."""
    fields = (
        ("server", profile.server),
        ("token", profile.token),
        (_FROM_BROWSER, profile.is_from_browser),
    )
    return [f"{key} = {json.dumps(value)}\n" for key, value in fields if value]


def find_access(
    server: str | None,
    environment: Mapping[str, str],
    *,
    profile: str | None = None,
    link: str | None = None,
) -> Access:
    """Return the server to use, and the token for it.

    Args:
        server: the value of `--server`, or None.
        environment: the environment variables.
        profile: the value of `--profile`, or None: then TBHUB_PROFILE counts.
        link: the server of an experiment's URL. Someone else may have written that URL, so the
            token of another server is never sent there.

    Raises:
        UsageError: no server is configured, there is no such profile, or an address or token is
            malformed.
    """
    from tbupload.http.connection_pool import is_loopback  # noqa: PLC0415 - slow; scripts only read

    path = config_path(environment)
    config = read_config(path)
    selected = _select_profile(path, config, profile or environment.get("TBHUB_PROFILE") or None)
    # --profile is more explicit than the environment, which may be of another shell session.
    variables = {} if profile else environment
    configured = variables.get("TBHUB_SERVER") or selected.server
    named = server or link or configured
    if not named:
        raise UsageError(_NO_SERVER)
    address = _check_named(named, server, link, variables.get("TBHUB_SERVER"), path)

    warnings = []
    token = variables.get("TBHUB_TOKEN") or None
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

    if token is None:
        token = _stored_token(config, selected, address)
        warnings += _warn_of_readers(path) if token is not None else []

    if token is not None:
        token = check_token(token)
        if address.startswith("http:") and not is_loopback(address):
            warnings.append(
                f"{address} is not https: anyone on the network path can read the token"
            )
    return Access(address, token, tuple(warnings))


def _warn_of_readers(path: Path) -> list[str]:
    """Return a warning if other users can read the config file, whose token is used."""
    if not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return []
    return [f"{path} contains a token and other users can read it: run `chmod 600 {path}`"]


def _select_profile(path: Path, config: Config, name: str | None) -> Profile:
    profile = config.find(name)
    if profile is None:
        names = ", ".join(config.profiles) or "none"
        raise UsageError(
            f"{path} has no profile {name!r} (it has: {names}): "
            f"`tbupload login --server URL --profile {name}` stores one"
        )
    return profile


def _stored_token(config: Config, selected: Profile, address: str) -> str | None:
    """Return the token for this server: of the selected profile, or else of the first that fits."""
    for profile in (selected, config.default, *config.profiles.values()):
        if profile.token and profile.server and check_server(profile.server) == address:
            return profile.token
    return None


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
    if "/experiment/" in f"{parts.path}/":
        address = server.strip().partition("/experiment/")[0]
        raise UsageError(
            f"{server!r} is the address of an experiment; that of its server is {address}"
        )
    return urllib.parse.urlunsplit(parts).rstrip("/")


def _check_named(
    named: str, option: str | None, link: str | None, variable: str | None, path: Path
) -> str:
    """Return the address as `check_server` does; its error says where the address is from."""
    try:
        return check_server(named)
    except UsageError as error:
        if option or link:
            raise
        source = "TBHUB_SERVER" if variable else str(path)
        raise UsageError(f"{source}: {error}") from error


def check_token(token: str) -> str:
    """Return the token without surrounding white space. Raise UsageError if it is malformed.

    The message does not contain the token.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token is empty or contains invalid characters")
    return token
