"""Where a log directory is: on a file system of this machine, or behind a URL such as `s3://…`."""

from __future__ import annotations

import re
from typing import Final

_REMOTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""The beginning of a URL; one letter before the colon would be a drive of Windows."""


def is_remote(text: str) -> bool:
    """Return whether a log directory is named by a URL."""
    return _REMOTE.match(text) is not None
