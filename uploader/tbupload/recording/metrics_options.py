"""How often system metrics are measured and what their run is called; light to import."""

from __future__ import annotations

import importlib.util
import re
from typing import Final

from tbupload.errors import UsageError

SECONDS_DEFAULT: Final = 10.0
"""Interval of the measurements."""

SECONDS_MIN: Final = 1.0
SECONDS_MAX: Final = 3600.0

RUN_PREFIX: Final = "system/"
TAG_PREFIX: Final = "system/"

RUN_ID_CHARS: Final = 8
"""Digits of the upload's id in the name of the run: a name of the machine would tell who and where.
"""

NO_PSUTIL: Final = "system metrics need psutil: pip install 'tbhub[system]', or pip install psutil"


def has_psutil() -> bool:
    """Return whether the machine can be measured."""
    return importlib.util.find_spec("psutil") is not None


def require_psutil() -> None:
    """Raise UsageError if the machine cannot be measured."""
    if not has_psutil():
        raise UsageError(NO_PSUTIL)


def run_name(upload_id: str) -> str:
    """Return the name of the run with the metrics of an upload."""
    return f"{RUN_PREFIX}{upload_id[:RUN_ID_CHARS]}"


def is_metrics_run(run: str) -> bool:
    """Return whether a run has the name of one with system metrics."""
    return re.fullmatch(f"{RUN_PREFIX}[0-9a-f]{{{RUN_ID_CHARS}}}", run) is not None
