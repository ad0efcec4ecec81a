"""Headers of all responses: nosniff, noindex, no shared cache for the API's; hashes for CSP."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
"""Stops browsers from guessing a content type: any response may contain data of tenants."""

_NOINDEX: Final = "noindex"
"""Keeps search engines from listing what is shared, also what is no HTML."""

PUBLISHED: Final = {"X-Robots-Tag": "all"}
"""Header of the pages of an experiment that its owner has published to search engines."""

_PRIVATE: Final = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Accept"}
"""Caching headers of API responses that set none themselves: they depend on the token."""


def content_hash(page: str, element: str) -> str:
    """Return the hash source of a page's only `<style>` or `<script>` element.

    For a Content-Security-Policy: see "hash-source" in Content Security Policy Level 3 (W3C).
    """
    content = page.partition(f"<{element}>")[2].partition(f"</{element}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


class SecurityHeadersMiddleware:
    """Middleware that adds these headers, and keeps responses of the API out of shared caches."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(NOSNIFF)
                headers.setdefault("X-Robots-Tag", _NOINDEX)
                if scope["path"].startswith("/api/"):
                    for name, value in _PRIVATE.items():
                        headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
