"""A second attempt at a request whose read the replica has ended, on the primary.

A standby ends a read that is in the way of what it has to replay (PostgreSQL manual, 26.4.2), and
one that is stopped ends all. The reader does not learn of it.
"""

from __future__ import annotations

from starlette import status
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice.db.database import Database


class PrimaryRetryMiddleware:
    """Middleware that repeats such a GET, if no part of its response has been sent.

    Others may change something: they get 503, and `Retry-After`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        attempt = Database.begin_attempt()
        is_dropped = False

        async def send_unless_failed(message: Message) -> None:
            nonlocal is_dropped
            is_dropped |= (
                message["type"] == "http.response.start"
                and message["status"] == status.HTTP_503_SERVICE_UNAVAILABLE
                and attempt.has_replica_failed
            )
            if not is_dropped:
                await send(message)

        before = dict(scope)
        await self._app(scope, receive, send_unless_failed)
        if is_dropped:
            scope.clear()  # routing has written what it found into it
            scope.update(before)
            attempt.is_primary_only = True
            await self._app(scope, receive, send)
