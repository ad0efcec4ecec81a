"""Whether nothing is to be recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tbupload.config import config_path, read_config
from tbupload.errors import UsageError

OPT_OUT_VARIABLE: Final = "TBHUB_NO_ORIGIN"

_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def records_nothing(environment: Mapping[str, str], *, no_origin: bool) -> bool:
    """Return whether the option, the environment variable or the config file forbids to record."""
    if no_origin:
        return True
    variable = environment.get(OPT_OUT_VARIABLE)
    if variable is not None and variable.strip().lower() not in _OFF:
        return True
    try:
        return read_config(config_path(environment)).no_origin
    except (UsageError, RuntimeError):  # which the uploader reports
        return True
