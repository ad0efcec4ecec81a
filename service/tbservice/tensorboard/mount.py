"""Mount the stock TensorBoard page into the service: its routes and default response headers."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from fastapi import FastAPI
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import Message, Receive, Scope, Send

from tbservice.pages.base.content_origin import ContentMount
from tbservice.pages.stock_page import download, hand_over, page_auth
from tbservice.tensorboard import assets, data_routes, page, page_routes
from tbservice.tensorboard.plugins import projector

# The web app puts this below its own address before each data route: it always shows one logdir.
_DEFAULT_EXPERIMENT: Final = "/experiment/defaultExperimentId/"


_PAGE: Final = re.compile(r"/[^/]*(/attempt/[0-9]+|/groups/[^/]+)?")
"""Prefix of its path: the page of an experiment or a comparison, of an attempt, or of groups."""

_Endpoint = Callable[[Request], Response]


class _AttemptConvertor(Convertor[int]):
    """The number of an attempt in a path, from 1, as it is spelled in one way."""

    regex = "[1-9][0-9]{0,8}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("attempt", _AttemptConvertor())


def mount(app: FastAPI) -> None:
    """Mount `/experiment/…`, `/compare/…` and the front end's files on `app`.

    With a content origin they are all that it has, before any other route; the public origin
    redirects to it. Requests read `app.state.database`, `.objects`, `.settings` and `.handlers`.
    """
    files = Route("/{edition}/{path:path}", page_routes.read_asset)
    extra_routes = {"/download/{file}": download.send_file}
    mounts = [
        # Starlette's redirects would be made of the Host header: ours are relative.
        Mount(assets.PREFIX, app=Router([files], redirect_slashes=False)),
        Mount("/experiment", app=PageApplication("experiment_id", page.show_page, extra_routes)),
        Mount("/compare", app=PageApplication("comparison", page.show_comparison)),
    ]
    if app.state.settings.content_url is None:
        app.router.routes.extend(mounts)
    else:
        # First: on the content origin, no other route may answer.
        app.router.routes.insert(0, ContentMount(mounts))
        app.router.routes.extend(hand_over.mounts(assets.PREFIX))


class PageApplication:
    """The ASGI application below `/experiment` or `/compare`.

    `parameter` is the path parameter that `page_auth` reads, `experiment_id` or `comparison`;
    `extra_routes` are further routes of this application, by their path below the page. An
    experiment has a page for each attempt below its own, with the same routes, and a comparison one
    for groups of its runs.
    """

    def __init__(
        self,
        parameter: str,
        show_page: _Endpoint,
        extra_routes: Mapping[str, _Endpoint] = MappingProxyType({}),
    ) -> None:
        below = "attempt/{attempt:attempt}" if parameter == "experiment_id" else "groups/{groups}"
        bases = [f"/{{{parameter}}}/{below}", f"/{{{parameter}}}"]
        self._router = Router(
            [route for base in bases for route in _page_routes(base, show_page, extra_routes)],
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


def _page_routes(
    base: str, show_page: _Endpoint, extra_routes: Mapping[str, _Endpoint]
) -> list[Route]:
    """Return the routes of a page at the address `base`, and below it."""
    return [
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
        Route(f"{base}/data/{{path:path}}", data_routes.serve_data, methods=["GET", "POST"]),
        *(Route(f"{base}{path}", endpoint) for path, endpoint in extra_routes.items()),
        Route(f"{base}/{{path:path}}", page_routes.redirect_to_asset),
    ]


async def _add_slash(request: Request) -> Response:
    """Redirect to the address with a slash at its end: all addresses in the page are relative."""
    query = request.url.query
    mounted = request.scope["root_path"].rpartition("/")[0]
    address = mounted + page_auth.page_path(request)
    return RedirectResponse(f"{address}?{query}" if query else address)


def _strip_default_experiment(scope: Scope) -> None:
    root: str = scope["root_path"]
    experiment, marker, rest = scope["path"].removeprefix(root).partition(_DEFAULT_EXPERIMENT)
    # Only directly below a page: a run may have a name with this text in it.
    if marker and _PAGE.fullmatch(experiment):
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
