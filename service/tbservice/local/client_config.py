"""The configuration file in which `tbupload` on this machine finds the server and a token."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

_IS_FROM_BROWSER = "token_is_from_browser"
"""Key of a token that `tbupload login` made: `tbupload logout` then revokes it."""


def write_client_config(
    file: Path, server: str, token: str, is_accepted: Callable[[str], bool]
) -> str | None:
    """Write server and token, unless the file configures another server.

    A token that the file has for this server stays if it `is_accepted`: it may be a person's, in
    whose name they upload. Returns None if the file has both; else a sentence that says why it was
    not changed.
    """
    text = ""
    try:
        text = file.read_text()
        config = tomllib.loads(text)
    except FileNotFoundError:
        config = {}
    except (OSError, ValueError) as error:
        return f"{file} cannot be read ({error}) and was not changed."
    own = config.get("token")
    if config.get("server") == server and (
        own == token or (isinstance(own, str) and is_accepted(own))
    ):
        return None
    if config and token != config.get("token") and server != config.get("server"):
        return f"{file} configures {config.get('server', 'no server')} and was not changed."
    config.pop(_IS_FROM_BROWSER, None)
    return _write(file, {**config, "server": server, "token": token}, _cut_tables(text))


def _cut_tables(text: str) -> str:
    """Return a TOML file's text from its first table on: other profiles of `tbupload`."""
    lines = text.splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.startswith("[")), len(lines))
    return "".join(["\n", *lines[first:]]) if lines[first:] else ""


def _write(file: Path, values: dict[str, object], tables: str) -> str | None:
    fields = {name: value for name, value in values.items() if not isinstance(value, dict)}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items()) + tables
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(file.name + ".new")
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:  # noqa: PTH123 - with a mode
            stream.write(text)
        draft.replace(file)
    except OSError as error:
        return f"{file} cannot be written ({error.strerror})."
    return None
