"""Headers that tell browsers what an answer is and may do; one of them is on every answer."""

from __future__ import annotations

import base64
import functools
import hashlib
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
"""No browser takes an answer for anything but what its Content-Type says: all of them may hold what tenants wrote."""


def content_hash(page: str, element: str) -> str:
    """Return what a Content-Security-Policy calls the content of the page's only `<style>` or `<script>`."""
    content = page.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


class SecurityHeadersMiddleware:
    """Middleware that adds `NOSNIFF` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        @functools.wraps(send)
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(NOSNIFF)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
