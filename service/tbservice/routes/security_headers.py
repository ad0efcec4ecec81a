"""Headers that every answer carries, whichever part of the service it comes from."""

from __future__ import annotations

import functools
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NOSNIFF: Final = {"X-Content-Type-Options": "nosniff"}
"""No browser takes an answer for anything but what its Content-Type says: all of them may hold what tenants wrote."""


class SecurityHeaders:
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
