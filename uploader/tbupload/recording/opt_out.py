"""Whether nothing is to be recorded, and what is said before something is."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Mapping
from typing import Final

from tbupload.config import config_path, read_config
from tbupload.console.terminal import write_line
from tbupload.errors import UsageError
from tbupload.recording.origin import sentence

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


@functools.cache
def announce() -> None:
    """Say what a script's uploads record; once per process."""
    with contextlib.suppress(OSError, ValueError):
        write_line(sys.stderr, f"tbupload: {sentence(is_script=True, is_training=True)}")
