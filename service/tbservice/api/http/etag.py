"""Conditional requests (RFC 9110, section 13): GETs of data have ETags.

The ETag is read before the data. At worst, a response is newer than its ETag, and is sent once more
on the next request; the reverse would keep clients at outdated data.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Coroutine
from importlib.metadata import version
from typing import Any, ClassVar, Final, cast

from fastapi import Request, Response

from tbservice.api.http import compression
from tbservice.api.http.grant_route import GrantRoute
from tbservice.api.http.openapi_errors import NOT_MODIFIED
from tbservice.api.http.shared_answers import SharedAnswers, make_key
from tbservice.errors import forget_frames
from tbservice.settings import Settings
from tbservice.types.grants import Grant

_SOFTWARE_VERSION: Final = version("tbhub")
_VARY: Final = "Authorization, Accept, Accept-Encoding"


class _Answered(Exception):
    """The client, or this worker, has the answer already; caught in this module."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class ConditionalRoute(GrantRoute):
    """Route whose GET responses have the ETag of `answer_if_current`, or are 304 for that client.

    Responses are compressed if that pays, and kept for others who ask for the same.
    """

    keeps_answers: ClassVar[bool] = True

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
            except _Answered as answered:
                response = answered.response
                forget_frames(answered)
            else:
                _keep(request, response)
            etag = getattr(request.state, "entity_tag", None)
            if etag is not None:
                response.headers.setdefault("ETag", etag)
            response.headers.setdefault("Vary", _VARY)
            return response

        return handle_conditionally


class FreshRoute(ConditionalRoute):
    """Conditional route that reads each answer again: it finds what was damaged meanwhile."""

    keeps_answers = False


def is_conditional(request: Request) -> bool:
    """Return whether the response gets an ETag."""
    return request.method == "GET" and isinstance(request.scope.get("route"), ConditionalRoute)


def has_current_copy(request: Request, entity_tag: str) -> bool:
    """Return whether `If-None-Match` has an ETag (RFC 9110, section 13.1.2).

    It uses the weak comparison: "W/" does not count.
    """
    sent = request.headers.get("if-none-match", "").split(",")
    client_tags = {tag.strip().removeprefix("W/") for tag in sent}
    return bool(client_tags & {entity_tag, "*"})


def answer_if_current(request: Request, grant: Grant, state: str) -> None:
    """Set the ETag of the response, and end the request with 304 if `If-None-Match` has it.

    Ends it with the answer that this worker has sent to another request, if it has kept one.

    `state` must change whenever the data changes. The ETag also depends on the software version and
    on what else a representation varies with: the Accept header, the content coding, and the
    reservoir sizes.
    """
    settings: Settings = request.app.state.settings
    varies_with = (
        request.headers.get("accept", ""),
        settings.reservoir_sizes,
        compression.choose_coding(request.headers.get("accept-encoding", "")),
    )
    # Not `hash`, which differs between processes (PYTHONHASHSEED): workers would not know each
    # other's.
    variant = zlib.crc32(repr(varies_with).encode())
    request.state.entity_tag = f'"{_SOFTWARE_VERSION}-{state}-{variant:x}"'
    if has_current_copy(request, request.state.entity_tag):
        raise _Answered(Response(status_code=304))
    if not request.scope["route"].keeps_answers:
        return
    request.state.answer_key = make_key(request, grant, request.state.entity_tag)
    kept = _shared_answers(request).find(request.state.answer_key)
    if kept is not None:
        raise _Answered(kept)


def _keep(request: Request, response: Response) -> None:
    key = getattr(request.state, "answer_key", None)
    if key is not None:
        _shared_answers(request).put(key, response)


def _shared_answers(request: Request) -> SharedAnswers:
    return cast("SharedAnswers", request.app.state.shared_answers)
