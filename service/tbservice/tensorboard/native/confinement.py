"""Confinement: native handlers leave Markdown and histograms, untrusted, to a handler process."""

from __future__ import annotations

from typing import Final

from werkzeug.wrappers import Request

IS_PROCESS_KEY: Final = "tbhub.is_process"
"""Key of a bool in the WSGI environment: whether this is a handler process."""


class NeedsProcess(Exception):
    """The request must be answered by a handler process instead."""


def require_process(request: Request) -> None:
    """Raise NeedsProcess unless this is a handler process."""
    if not request.environ[IS_PROCESS_KEY]:
        raise NeedsProcess
