"""The way from the public origin to the content origin, with what a signed-in person may read.

On the public origin, the addresses of TensorBoard's pages are redirects. They carry new tokens
that do nothing but read these experiments, and end with the person's browser session.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router

from tbservice.api.http.dependencies import get_settings
from tbservice.pages.base.content_origin import raw_address
from tbservice.pages.base.csrf import is_navigation
from tbservice.pages.base.frame import frame_ancestors
from tbservice.pages.stock_page import page_auth

_PAGE_OR_FILE: Final = re.compile(
    r"((attempt/[0-9]+|groups/[^/]+)/?|(attempt/[0-9]+/)?download/.*)?", re.DOTALL
)
"""Paths below an experiment's or a comparison's of pages and of downloads."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    # A page of the content origin that opened this window has no hold on what follows.
    "Cross-Origin-Opener-Policy": "same-origin",
}


def mounts(*prefixes: str) -> list[Mount]:
    """Return the mounts of the public origin for pages, their data, and files below `prefixes`."""
    return [
        *(_mount(prefix, "/{path:path}") for prefix in prefixes),
        _mount("/experiment", "/{experiment_id}", "/{experiment_id}/{path:path}"),
        _mount("/compare", "/{comparison}", "/{comparison}/{path:path}"),
    ]


def _mount(prefix: str, *paths: str) -> Mount:
    routes = [Route(path, _redirect, methods=["GET", "POST"]) for path in paths]
    return Mount(prefix, app=Router(routes, redirect_slashes=False))


def _redirect(request: Request) -> Response:
    """Redirect to the same address on the content origin, for a page or a download with tokens.

    A link's own token stays alone: who follows a link sees what it shows. Without a token to add,
    an empty one tells the content origin not to send the reader here again.
    """
    address = f"{get_settings(request).content_url}{raw_address(request)}"
    if _takes_tokens(request):
        tokens = page_auth.make_browser_tokens(request) if is_navigation(request.headers) else []
        address += "&" if request.url.query else "?"
        address += urlencode([("token", token) for token in tokens or [""]])
    # Clients that show the page in a frame ask here whether they may, with a token for this origin.
    headers = {**_HEADERS, "Content-Security-Policy": frame_ancestors(request)}
    return RedirectResponse(address, 303 if request.method == "GET" else 307, headers)


def _takes_tokens(request: Request) -> bool:
    parameters = request.path_params
    is_page = {"experiment_id", "comparison"} & parameters.keys()
    return (
        request.method == "GET"
        and bool(is_page)
        and _PAGE_OR_FILE.fullmatch(parameters.get("path", "")) is not None
        and "token" not in request.query_params
    )
