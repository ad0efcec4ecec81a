"""A trace of every request, by its route's template, as in the metrics."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice import traces
from tbservice.api.http.methods import METHODS
from tbservice.api.http.metrics_middleware import TEMPLATE_KEY
from tbservice.api.http.request_id import REQUEST_ID

_SERVER_ERROR = 500


class TracesMiddleware:
    """Middleware that makes each request a span; add it inside of the one for request ids.

    Without path, query, headers and address: they hold ids, names and tokens.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Trace one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = _SERVER_ERROR  # if no response starts, the server failed

        async def observing_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with traces.request(Headers(scope=scope)) as request:
            try:
                await self._app(scope, receive, observing_send)
            finally:
                method = scope["method"] if scope["method"] in METHODS else "_OTHER"
                route = scope.get(TEMPLATE_KEY, "")
                attributes: dict[str, str | int] = {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "tbhub.request_id": REQUEST_ID.get(),
                }
                request.describe(f"{method} {route}", attributes, failed=status >= _SERVER_ERROR)
