"""How often system metrics are measured, and whether they can be: imported by training scripts."""

from __future__ import annotations

import importlib.util
from typing import Final

from tbupload.errors import UsageError

SECONDS_DEFAULT: Final = 10.0
"""Interval of the measurements."""

SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 3600.0

NO_PSUTIL: Final = "system metrics need psutil: pip install 'tbhub[system]', or pip install psutil"


def has_psutil() -> bool:
    """Return whether the machine can be measured."""
    return importlib.util.find_spec("psutil") is not None


def require_psutil() -> None:
    """Raise UsageError if the machine cannot be measured."""
    if not has_psutil():
        raise UsageError(NO_PSUTIL)
