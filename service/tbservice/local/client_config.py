"""Tells the uploader on this machine where the server is: the client's configuration file, as `tbupload` reads it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path


def write_client_config(file: Path, server: str, token: str) -> str | None:
    """Writes server and token where there is no configuration yet, or where it is about this server already.

    Any other configuration is left as it is: returns a sentence that says so, and None when all is well.
    """
    try:
        found = tomllib.loads(file.read_text())
    except FileNotFoundError:
        found = {}
    except (OSError, ValueError) as error:
        return f"{file} cannot be read ({error}) and was left as it is."
    if found.get("server") == server and found.get("token") == token:
        return None
    if found and token != found.get("token") and server != found.get("server"):
        return f"{file} points to {found.get('server', 'no server')} and was left as it is."
    return _write(file, {**found, "server": server, "token": token})


def client_config_file() -> Path:
    """Where `tbupload` looks."""
    return Path(os.environ.get("TBHUB_CONFIG") or Path.home() / ".config" / "tbhub" / "config.toml")


def _write(file: Path, values: dict[str, object]) -> str | None:
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
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
