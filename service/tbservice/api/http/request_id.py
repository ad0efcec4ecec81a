"""The id of a request: in its response, and in what is logged while it is processed."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice.admission.callers import site_of
from tbservice.audit.acting import begin_request

HEADER: Final = "X-Request-ID"

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Id of the request that this task or thread processes; empty outside of requests."""

_VALID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestIdMiddleware:
    """Middleware that gives each request an id: the one that a proxy has sent, or a new one.

    A client may choose its id, which only marks its own requests. Anything but 1 to 64 letters,
    digits, dots, hyphens and underscores is replaced.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get(HEADER, "")
        request_id = sent if _VALID.fullmatch(sent) else secrets.token_hex(8)
        # Not reset: the handler of an unexpected error runs after this, and the server processes
        # each request in a task of its own.
        REQUEST_ID.set(request_id)
        client = scope.get("client")
        begin_request(site_of(client[0]) if client else "", request_id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)
