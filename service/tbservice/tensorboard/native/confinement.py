"""Which data the native handlers leave to a handler process: texts in Markdown, and histograms of any size."""

from __future__ import annotations

from typing import Final

from werkzeug.wrappers import Request

IS_PROCESS_KEY: Final = "tbhub.is_process"
"""Where the WSGI environment says whether a handler process answers."""


class NeedsProcess(Exception):
    """The request is to be answered again, by a handler process."""


def require_process(request: Request) -> None:
    """Raises NeedsProcess unless a handler process answers the request."""
    if not request.environ[IS_PROCESS_KEY]:
        raise NeedsProcess
