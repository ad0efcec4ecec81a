"""Page to show after signing in: a path of this service, never another site."""

from __future__ import annotations

import re
from typing import Final

_CHARS_MAX: Final = 2_000
# Printable ASCII only. Browsers drop tabs and line breaks, and read a backslash as a slash, by
# which "/\t/host" and "/\host" would be addresses of another host (WHATWG URL, "URL parsing").
_PATH: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
_SIGN_IN: Final = re.compile(r"/sign-(in|out)\b.*")


def safe_next(path: str) -> str:
    """Return the path, which may have a query, if it is one of this service; else "/".

    The pages to sign in and out lead to "/" too.
    """
    is_own = len(path) <= _CHARS_MAX and _PATH.fullmatch(path) and not _SIGN_IN.fullmatch(path)
    return path if is_own else "/"
