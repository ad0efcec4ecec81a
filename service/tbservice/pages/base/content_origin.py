"""The content origin, where everything is that people upload and TensorBoard's page shows.

With the setting `content_url`, requests to its host name see the routes of `ContentMount` alone.
They have no cookie but the page's own: what is uploaded cannot act for the person who looks at it,
even if a script of it ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import BaseRoute, Match, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from tbservice.admission import callers
from tbservice.api.http.dependencies import get_settings

_FLAG: Final = "tbhub.is_content_origin"


def is_content_origin(request: Request) -> bool:
    """Return whether a request was sent to the content origin."""
    return bool(request.scope.get(_FLAG, False))


def public_site(request: Request) -> str:
    """Return the public URL for links from the content origin; "" where relative ones do."""
    return get_settings(request).public_url.rstrip("/") if is_content_origin(request) else ""


def redirect_to_public(request: Request) -> RedirectResponse:
    """Return the redirect to the same address on the public origin, where people are signed in."""
    return RedirectResponse(
        f"{public_site(request)}{raw_address(request)}", 303, {"Cache-Control": "no-store"}
    )


def raw_address(request: Request) -> str:
    """Return path and query of a request as the browser wrote them."""
    path: str = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    return f"{path}?{request.url.query}" if request.url.query else path


class ContentOriginMiddleware:
    """Middleware that marks requests to the content origin, and removes other cookies from them.

    The host name alone decides, whatever the port: browsers send a host's cookies to all ports.
    """

    def __init__(self, app: ASGIApp, content_url: str) -> None:
        self._app = app
        self._host_name = urlsplit(content_url).hostname

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "http" and _host_name(scope) == self._host_name:
            scope = {**scope, _FLAG: True, "headers": _without_other_cookies(scope)}
        await self._app(scope, receive, send)


class ContentMount(Mount):
    """All routes of the content origin: they match its requests, and nothing else does."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        super().__init__("", app=Router(routes, redirect_slashes=False))

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match every request to the content origin; the inner router answers 404."""
        return super().matches(scope) if scope.get(_FLAG, False) else (Match.NONE, {})


def _host_name(scope: Scope) -> str | None:
    try:
        name = urlsplit(f"//{Headers(scope=scope).get('host', '')}").hostname
    except ValueError:  # no host at all
        return None
    return name and name.removesuffix(".")  # the same host, absolute (RFC 1034, 3.1)


def _without_other_cookies(scope: Scope) -> list[tuple[bytes, bytes]]:
    headers = MutableHeaders(raw=list(scope["headers"]))
    cookie = ";".join(headers.getlist("cookie"))
    del headers["cookie"]
    kept = [
        f"{callers.READ_COOKIE}={value}"
        for value in callers.cookie_values(cookie, callers.READ_COOKIE)
    ]
    if kept:
        headers["cookie"] = "; ".join(kept)
    return headers.raw
