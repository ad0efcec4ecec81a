"""Answers that need not be sent again: every GET of an experiment's data has an ETag that changes with the data.

The tag is looked up before the data is: at worst an answer that is newer than its tag is sent once more.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from tbservice.api.http.openapi_errors import NOT_MODIFIED
from tbservice.settings import Settings

_SOFTWARE_VERSION: Final = version("tbhub")
_HEADERS: Final = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Accept"}


class _NotModified(Exception):
    """The client has this very answer; never leaves this module."""


class ConditionalRoute(APIRoute):
    """A route whose GET answers carry the tag that `set_etag` was told, and are 304 to whoever has them already."""

    def __init__(self, *path: Any, **options: Any) -> None:
        if "GET" in options.get("methods", ()):
            options["responses"] = {**(options.get("responses") or {}), **NOT_MODIFIED}
        super().__init__(*path, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's own handler, with the tag around it."""
        handle = super().get_route_handler()

        async def handle_conditionally(request: Request) -> Response:
            try:
                response = await handle(request)
            except _NotModified:
                response = Response(status_code=304)
            tag = getattr(request.state, "entity_tag", None)
            if tag is not None:
                for name, value in (_HEADERS | {"ETag": tag}).items():
                    response.headers.setdefault(name, value)
            return response

        return handle_conditionally


def is_conditional(request: Request) -> bool:
    """Whether the answer is to carry a tag."""
    return request.method == "GET" and isinstance(request.scope.get("route"), ConditionalRoute)


def set_etag(request: Request, state: str) -> None:
    """Ends the request when the client has the answer; `state` is another one whenever the data is."""
    settings: Settings = request.app.state.settings
    variant = zlib.crc32(f"{request.headers.get('accept', '')} {settings.reservoir_sizes}".encode())
    request.state.entity_tag = f'"{_SOFTWARE_VERSION}-{state}-{variant:x}"'
    client_tags = [
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("if-none-match", "").split(",")
    ]
    if request.state.entity_tag in client_tags or client_tags == ["*"]:
        raise _NotModified
