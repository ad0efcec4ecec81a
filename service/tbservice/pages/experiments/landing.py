"""The start page for those who are not signed in: what this is, and how to upload."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from tbservice.api.http.dependencies import get_settings
from tbservice.pages.base.frame import render


def show_landing(request: Request) -> Response:
    """Return the start page for a browser that is not signed in."""
    server = get_settings(request).public_url.rstrip("/")
    return render(request, "landing.html", server=server)
