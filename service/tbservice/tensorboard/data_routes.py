"""The data routes that TensorBoard's code answers: where the work is done, and what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.body import read_body
from tbservice.handlers.pool import HandlerPool
from tbservice.pages import page_auth
from tbservice.reading.source import Source
from tbservice.tensorboard import stock_application, wsgi_bridge
from tbservice.tensorboard.native import routes
from tbservice.tensorboard.native.confinement import NeedsProcess
from tbservice.tensorboard.remote_reader import describe_source, make_calls

# For answers that bring none of their own. The policy is for data opened in its own tab: whatever a run logged as an
# image or a text, it is shown, but runs nothing and reaches nothing.
HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

_SEVERAL_WORKSPACES: Final = 0

_CLIENT_CLOSED_REQUEST: Final = 499
"""The status that nobody receives; metrics have it, and the log no traceback."""


async def serve_data(request: Request) -> Response:
    """Answer any data route that is not answered natively: grant first, then the body, then the work."""
    handlers = cast("HandlerPool", request.app.state.handlers)
    source = await handlers.in_thread(page_auth.open_source, request)
    body = await read_body(request, limits.JSON_BODY_BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)
    path = f"/data/{request.path_params['path']}"
    environ = wsgi_bridge.wsgi_environ(
        request, page_auth.page_path(request).rstrip("/"), path, body
    )
    response = await _while_connected(request, source, _dispatch(handlers, source, environ, body))
    response.headers.update(HEADERS)  # the stock ones let shared caches keep what is private
    return response


async def _dispatch(
    handlers: HandlerPool, source: Source, environ: dict[str, Any], body: bytes
) -> Response:
    if routes.is_native(environ):
        try:
            return await handlers.in_thread(_answer_in_thread, source, environ, body)
        except NeedsProcess:
            pass
    status, headers, content = await handlers.in_process(
        "answer_request",
        *(environ, body, describe_source(source)),
        calls=make_calls(source),
        cancel=source.cancel,
    )
    response = Response(content, status)
    response.raw_headers = headers
    return response


def _answer_in_thread(source: Source, environ: dict[str, Any], body: bytes) -> Response:
    whole = wsgi_bridge.with_streams(environ, body)
    stock_application.bind_source(whole, source)
    return routes.dispatch(whole, is_process=False)


async def _while_connected(
    request: Request, source: Source, work: Coroutine[Any, Any, Response]
) -> Response:
    """Return what the work returns; it is cancelled, and what is read for it, when the client leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_wait_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else Response(status_code=_CLIENT_CLOSED_REQUEST)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.to_thread(source.cancel)


async def _wait_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
