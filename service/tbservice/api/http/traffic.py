"""Count what answers send for the quotas of workspaces, and tell clients what remains."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tbservice.quotas.traffic import TrafficMeter


class TrafficMiddleware:
    """Middleware that counts each request, and the bytes of its answer, for its workspace.

    Which one that is says the grant that the request gets; one without a grant counts for none.
    """

    def __init__(self, app: ASGIApp, meter: TrafficMeter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = self._meter.begin_request()

        async def send_counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                if fields := request.list_fields():
                    MutableHeaders(scope=message).update(dict(fields))
            else:
                request.add_bytes(len(message.get("body", b"")))
            await send(message)

        await self._app(scope, receive, send_counted)
