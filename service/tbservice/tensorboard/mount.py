"""Mount the stock TensorBoard page into the service: its routes and default response headers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Message, Receive, Scope, Send

from tbservice.pages import download, hand_over
from tbservice.pages.content_origin import ContentMount
from tbservice.tensorboard import assets, data_routes, page, page_routes
from tbservice.tensorboard.plugins import projector

# The web app puts this below its own address before each data route: it always shows one logdir.
_DEFAULT_EXPERIMENT: Final = "/experiment/defaultExperimentId/"


def mount(app: FastAPI) -> None:
    """Mount `/experiment/…`, `/compare/…` and the front end's files on `app`.

    With a content origin they are all that it has, before any other route; the public origin
    redirects to it. Requests read `app.state.database`, `.objects`, `.settings` and `.handlers`.
    """
    files = Route("/{edition}/{path:path}", page_routes.read_asset)
    download_file = Route("/{experiment_id}/download/{file}", download.send_file)
    mounts = [
        Mount(assets.PREFIX, app=Router([files], redirect_slashes=False)),
        Mount("/experiment", app=PageApplication("experiment_id", page.show_page, download_file)),
        Mount("/compare", app=PageApplication("comparison", page.show_comparison)),
    ]
    if app.state.settings.content_url is None:
        app.router.routes.extend(mounts)
    else:
        app.router.routes.insert(0, ContentMount(mounts))
        app.router.routes.extend(hand_over.mounts(assets.PREFIX))


class PageApplication:
    """The ASGI application below `/experiment` or `/compare`.

    `parameter` is the path parameter that `page_auth` reads, `experiment_id` or `comparison`;
    `extra_routes` are routes that only this application has.
    """

    def __init__(
        self, parameter: str, show_page: Callable[[Request], Response], *extra_routes: Route
    ) -> None:
        base = f"/{{{parameter}}}"
        self._router = Router(
            [
                Route(base, _add_slash),
                Route(f"{base}/", show_page),
                Route(f"{base}/", page.submit_token, methods=["POST"]),
                Route(f"{base}/data/environment", page_routes.show_environment),
                Route(f"{base}/data/runs", page_routes.list_runs),
                Route(f"{base}/data/blob/{{blob_key}}", page_routes.read_blob),
                Route(f"{base}/data/plugin/images/individualImage", page_routes.read_blob),
                Route(f"{base}/data/plugin/audio/individualAudio", page_routes.read_blob),
                Route(f"{base}/data/plugin/timeseries/imageData", page_routes.read_blob),
                *projector.routes(f"{base}/data"),
                Route(
                    f"{base}/data/{{path:path}}", data_routes.serve_data, methods=["GET", "POST"]
                ),
                *extra_routes,
                Route(f"{base}/{{path:path}}", page_routes.redirect_to_asset),
            ],
            redirect_slashes=False,
        )

    @property
    def routes(self) -> list[BaseRoute]:
        """Return the routes; their paths are relative to the mount's."""
        return self._router.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            _strip_default_experiment(scope)
            send = _with_headers(send)
        await self._router(scope, receive, send)


async def _add_slash(request: Request) -> Response:
    """Redirect to the address with a slash at its end: all addresses in the page are relative."""
    query = request.url.query
    (name,) = request.path_params.values()
    address = f"{request.scope['root_path']}/{quote(name, safe=':,')}/"
    return RedirectResponse(f"{address}?{query}" if query else address)


def _strip_default_experiment(scope: Scope) -> None:
    root: str = scope["root_path"]
    experiment, marker, rest = scope["path"].removeprefix(root).partition(_DEFAULT_EXPERIMENT)
    if marker and "/" not in experiment[1:]:
        scope["path"] = f"{root}{experiment}/{rest}"


def _with_headers(send: Send) -> Send:
    @functools.wraps(send)
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in data_routes.HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
