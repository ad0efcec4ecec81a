"""Puts the stock TensorBoard page into the service: what answers which address, and the headers all answers carry."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Message, Receive, Scope, Send

from tbservice import limits
from tbservice.routes.body import read_body
from tbservice.tensorboard import assets, bridge, download, gate, native, page, projector, stock
from tbservice.tensorboard.compare import page as comparison_page
from tbservice.tensorboard.hot import routes as hot

_THREADS: Final = 8
"""Stock handlers at work at once; each needs a database connection of its own while it reads."""

# The web app always asks for an experiment of this name, below its own address.
_DEFAULT_EXPERIMENT: Final = "/experiment/defaultExperimentId/"

# For answers that bring none of their own. The policy is for data opened in its own tab: whatever a run logged as an
# image or a text, it is shown, but runs nothing and reaches nothing.
_HEADERS: Final = {
    "Cache-Control": "private, no-cache",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def mount(app: FastAPI) -> None:
    """Adds `/experiment/…`, `/compare/…` and the front end's files.

    Requests use `app.state.database`, `.objects` and `.settings`.
    """
    app.mount(assets.PREFIX, Router([Route("/{edition}/{path:path}", native.read_asset)]))
    threads = bridge.Threads(_THREADS)
    file = Route("/{experiment_id}/download/{file}", download.send_file)
    app.mount("/experiment", Pages("experiment_id", page.show_page, threads, file))
    app.mount("/compare", Pages("comparison", comparison_page.show_page, threads))


class Pages:
    """The ASGI application below `/experiment`, and the one below `/compare`.

    `what` is the path parameter by which the gate knows what is to be read; `own` are the routes of this one alone.
    """

    def __init__(
        self, what: str, show_page: Callable[[Request], Response], threads: bridge.Threads, *own: Route
    ) -> None:
        self._threads = threads
        base = f"/{{{what}}}"
        self._router = Router(
            [
                Route(base, _add_slash),
                Route(f"{base}/", show_page),
                Route(f"{base}/", page.submit_token, methods=["POST"]),
                Route(f"{base}/data/environment", native.show_environment),
                Route(f"{base}/data/runs", native.list_runs),
                Route(f"{base}/data/blob/{{blob_key}}", native.read_blob),
                Route(f"{base}/data/plugin/images/individualImage", native.read_blob),
                Route(f"{base}/data/plugin/audio/individualAudio", native.read_blob),
                Route(f"{base}/data/plugin/timeseries/imageData", native.read_blob),
                *projector.routes(f"{base}/data"),
                Route(f"{base}/data/{{path:path}}", self._answer_with_stock, methods=["GET", "POST"]),
                *own,
                Route(f"{base}/{{path:path}}", native.find_own_asset),
            ],
            redirect_slashes=False,
        )

    @property
    def routes(self) -> list[BaseRoute]:
        """What is answered here; their paths begin below the mount's."""
        return self._router.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] == "http":
            _take_out_default_experiment(scope)
            send = _with_headers(send)
        await self._router(scope, receive, send)

    async def _answer_with_stock(self, request: Request) -> Response:
        """Any data route that is not answered natively: grant first, then the body, then the work."""
        source = await self._threads.run(gate.open_source, request)
        body = await read_body(request, limits.json_body_bytes_max, limits.body_seconds_max)
        path = f"/data/{request.path_params['path']}"
        environ = bridge.wsgi_environ(request, gate.page_path(request).rstrip("/"), path, body)
        stock.bind(environ, source)
        response = await self._threads.run(hot.answer, environ)
        response.headers.update(_HEADERS)  # the stock ones let shared caches keep what is private
        return response


async def _add_slash(request: Request) -> Response:
    """Everything the page asks for is relative to its address, which therefore must end in a slash."""
    query = request.url.query
    (what,) = request.path_params.values()
    address = f"{request.scope['root_path']}/{quote(what, safe=':,')}/"
    return RedirectResponse(f"{address}?{query}" if query else address)


def _take_out_default_experiment(scope: Scope) -> None:
    root: str = scope["root_path"]
    experiment, marker, rest = scope["path"].removeprefix(root).partition(_DEFAULT_EXPERIMENT)
    if marker and "/" not in experiment[1:]:
        scope["path"] = f"{root}{experiment}/{rest}"


def _with_headers(send: Send) -> Send:
    @functools.wraps(send)
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
