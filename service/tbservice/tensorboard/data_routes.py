"""The data routes that run TensorBoard's code, in a thread or in a handler process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from tbservice import limits
from tbservice.api.http.body import read_body
from tbservice.handlers.pool import HandlerPool
from tbservice.pages.stock_page import page_auth
from tbservice.reading.comparison import Source
from tbservice.tensorboard import stock_application, wsgi_bridge
from tbservice.tensorboard.native import routes
from tbservice.tensorboard.native.confinement import NeedsProcess
from tbservice.tensorboard.remote_reader import describe_source, make_calls

# Defaults for responses that do not set these. The policy is for data opened in a tab of its own:
# an image or a text that a run logged is shown, but cannot run scripts or load anything.
HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


_CLIENT_CLOSED_REQUEST: Final = 499
"""nginx's status for a client that has disconnected: for metrics and logs, never received."""


async def serve_data(request: Request) -> Response:
    """Answer a data route: check access, then read the body, then run the handler.

    The work is cancelled when the client disconnects.
    """
    handlers = cast("HandlerPool", request.app.state.handlers)
    source = await handlers.in_thread(page_auth.open_source, request)
    body = await read_body(request, limits.JSON_BODY_BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)
    path = f"/data/{request.path_params['path']}"
    environ = wsgi_bridge.wsgi_environ(
        request, page_auth.page_path(request).rstrip("/"), path, body
    )
    response = await _while_connected(request, source, _dispatch(handlers, source, environ, body))
    # TensorBoard's own headers would let shared caches store private data.
    response.headers.update(HEADERS)
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
    full_environ = wsgi_bridge.with_streams(environ, body)
    stock_application.bind_source(full_environ, source)
    return routes.dispatch(full_environ, is_process=False)


async def _while_connected(
    request: Request, source: Source, work: Coroutine[Any, Any, Response]
) -> Response:
    """Return the result of `work`; cancel it and its running queries if the client disconnects."""
    work_task = asyncio.create_task(work)
    disconnect_task = asyncio.create_task(_wait_disconnected(request))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if work_task.done():
            return work_task.result()
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    finally:
        disconnect_task.cancel()
        if not work_task.done():
            work_task.cancel()
            await asyncio.to_thread(source.cancel)


async def _wait_disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
