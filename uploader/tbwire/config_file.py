"""The path of the file in which `tbupload` finds server and token, which `tbservice up` writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def config_path(environment: Mapping[str, str]) -> Path:
    """Return TBHUB_CONFIG, or `tbhub/config.toml` in XDG_CONFIG_HOME (by default `~/.config`).

    Raises RuntimeError if that needs a home directory, and there is none.
    """
    override = environment.get("TBHUB_CONFIG")
    if override:
        return Path(override).expanduser()
    base = environment.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base, "tbhub", "config.toml")
