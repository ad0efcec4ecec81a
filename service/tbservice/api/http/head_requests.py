"""HEAD wherever GET is (RFC 9110, section 9.1): the routes answer GET, and the body is dropped."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_IS_HEAD_KEY: Final = "tbhub.is_head"


class _BodyDropped(Exception):
    """The response has ended for the client; caught in this module."""


class HeadMiddleware:
    """Middleware that answers HEAD with the headers of GET.

    A response is complete with its first bytes: a stream ends there, a live tail too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        # The web server reads the method of `scope`, and middleware what routing writes into it.
        as_get = {**scope, "method": "GET", _IS_HEAD_KEY: True}

        async def send_head(message: Message) -> None:
            scope.update({**as_get, "method": "HEAD"})
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({**message, "body": b"", "more_body": False})
            if message.get("more_body", False):
                raise _BodyDropped

        try:
            await self._app(as_get, receive, send_head)
        except _BodyDropped:
            pass
        finally:
            scope.update({**as_get, "method": "HEAD"})


def wants_body(request: Request) -> bool:
    """Return whether the body of the response is sent: False for HEAD, which costs no reading."""
    return not request.scope.get(_IS_HEAD_KEY, False)
