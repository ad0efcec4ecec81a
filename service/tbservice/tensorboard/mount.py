"""Puts the stock TensorBoard page into the service: what answers which address, and the headers all answers carry."""

from __future__ import annotations

import functools
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
from tbservice.routes.requests import database_of, objects_of
from tbservice.tensorboard import assets, bridge, gate, native, page, projector, stock
from tbservice.tensorboard.hot import routes as hot
from tbservice.tensorboard.provider import Reader

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
    """Adds `/experiment/…` and the front end's files; requests use `app.state.database`, `.objects` and `.settings`."""
    app.mount(assets.PREFIX, Router([Route("/{edition}/{path:path}", native.read_asset)]))
    app.mount("/experiment", ExperimentPages())


class ExperimentPages:
    """The ASGI application below `/experiment`."""

    def __init__(self) -> None:
        self._threads = bridge.Threads(_THREADS)
        self._router = Router(
            [
                Route("/{experiment_id}", _add_slash),
                Route("/{experiment_id}/", page.show_page),
                Route("/{experiment_id}/", page.submit_token, methods=["POST"]),
                Route("/{experiment_id}/data/environment", native.show_environment),
                Route("/{experiment_id}/data/runs", native.list_runs),
                Route("/{experiment_id}/data/blob/{blob_key}", native.read_blob),
                Route("/{experiment_id}/data/plugin/images/individualImage", native.read_blob),
                Route("/{experiment_id}/data/plugin/audio/individualAudio", native.read_blob),
                Route("/{experiment_id}/data/plugin/timeseries/imageData", native.read_blob),
                *projector.routes("/{experiment_id}/data"),
                Route("/{experiment_id}/data/{path:path}", self._answer_with_stock, methods=["GET", "POST"]),
                Route("/{experiment_id}/{path:path}", native.find_own_asset),
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
        grant = await self._threads.run(gate.read_grant, request)
        body = await read_body(request, limits.json_body_bytes_max, limits.body_seconds_max)
        path = f"/data/{request.path_params['path']}"
        environ = bridge.wsgi_environ(request, f"/experiment/{grant.experiment_id}", path, body)
        stock.bind(environ, Reader(grant, database_of(request), objects_of(request)))
        response = await self._threads.run(hot.answer, environ)
        response.headers.update(_HEADERS)  # the stock ones let shared caches keep what is private
        return response


async def _add_slash(request: Request) -> Response:
    """Everything the page asks for is relative to its address, which therefore must end in a slash."""
    query = request.url.query
    address = f"{request.scope['root_path']}/{quote(request.path_params['experiment_id'], safe='')}/"
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
