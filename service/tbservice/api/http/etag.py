"""Conditional requests (RFC 9110, section 13): GETs of an experiment's data have ETags.

The ETag is read before the data. At worst, a response is newer than its ETag, and is sent once more
on the next request; the reverse would keep clients at outdated data.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any, Final

from fastapi import Request, Response

from tbservice.api.http import compression
from tbservice.api.http.grant_route import GrantRoute
from tbservice.api.http.openapi_errors import NOT_MODIFIED
from tbservice.settings import Settings

_SOFTWARE_VERSION: Final = version("tbhub")
_VARY: Final = "Authorization, Accept, Accept-Encoding"


class _NotModified(Exception):
    """The client's cached response is current; caught in this module."""


class ConditionalRoute(GrantRoute):
    """Route whose GET responses have the ETag of `set_etag`, or are 304 if the client has it.

    Responses are compressed if that pays.
    """

    def __init__(self, *path: Any, **options: Any) -> None:
        if "GET" in options.get("methods", ()):
            options["responses"] = {**(options.get("responses") or {}), **NOT_MODIFIED}
        super().__init__(*path, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler, wrapped to compress and to add the ETag."""
        handle = super().get_route_handler()

        async def handle_conditionally(request: Request) -> Response:
            try:
                response = await compression.compress(request, await handle(request))
            except _NotModified:
                response = Response(status_code=304)
            etag = getattr(request.state, "entity_tag", None)
            if etag is not None:
                response.headers.setdefault("ETag", etag)
            response.headers.setdefault("Vary", _VARY)
            return response

        return handle_conditionally


def is_conditional(request: Request) -> bool:
    """Return whether the response gets an ETag."""
    return request.method == "GET" and isinstance(request.scope.get("route"), ConditionalRoute)


def set_etag(request: Request, state: str) -> None:
    """Set the ETag of the response, and end the request with 304 if `If-None-Match` has it.

    `state` must change whenever the data changes. The ETag also depends on the software version and
    on what else a representation varies with: the Accept header, the content coding, and the
    reservoir sizes.
    """
    settings: Settings = request.app.state.settings
    varies_with = (
        request.headers.get("accept", ""),
        settings.reservoir_sizes,
        compression.choose_coding(request),
    )
    # Not `hash`, which differs between processes (PYTHONHASHSEED): workers would not know each
    # other's.
    variant = zlib.crc32(repr(varies_with).encode())
    request.state.entity_tag = f'"{_SOFTWARE_VERSION}-{state}-{variant:x}"'
    # If-None-Match uses the weak comparison (RFC 9110, section 13.1.2): "W/" does not count.
    client_tags = [
        tag.strip().removeprefix("W/")
        for tag in request.headers.get("if-none-match", "").split(",")
    ]
    if request.state.entity_tag in client_tags or client_tags == ["*"]:
        raise _NotModified
