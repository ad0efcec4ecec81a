"""Errors as pages: what a browser shows instead of the JSON that programs get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from tbservice.admission import refusals
from tbservice.api.http.security_headers import NOSNIFF
from tbservice.errors import (
    Conflict,
    Forbidden,
    NotFound,
    QuotaExceeded,
    ServiceError,
    Suspended,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from tbservice.pages.base.content_origin import is_content_origin
from tbservice.pages.base.frame import render

_TITLES: Final = {
    Unauthenticated.status: "This needs a sign-in",
    Forbidden.status: "You may not do this",
    NotFound.status: "There is nothing here",
    Conflict.status: "This has changed meanwhile",
    TooLarge.status: "This is too large",
    TooManyRequests.status: "Too much at once",
    Suspended.status: "This is suspended",
    ServiceError.status: "Something went wrong on the server",
    Unavailable.status: "One moment, please",
    QuotaExceeded.status: "A quota is used up",
}
_OTHER: Final = "This did not work"

_ADVICE: Final = {
    NotFound.status: "The address may be mistyped, or what it named was deleted, or it belongs to "
    "a workspace that you are not a member of.",
    TooManyRequests.status: "Wait a few seconds, and reload the page.",
    Unavailable.status: "Nothing was lost. Wait a few seconds, and reload the page.",
}


def wants_page(request: Request) -> bool:
    """Return whether the answer to this request is shown to a person: not below `/api`.

    Browsers name text/html when they open an address. Scripts and images of a page do not. The
    content origin has nothing that our pages link to.
    """
    is_api = request.url.path.startswith("/api/") or is_content_origin(request)
    return not is_api and "text/html" in request.headers.get("accept", "")


def show_error(
    request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Return the page of an error; `detail` is the sentence of a ServiceError.

    It reads nothing from the database: that may be what failed.
    """
    response = render(
        request,
        "error.html",
        status,
        heading=_TITLES.get(status, _OTHER),
        detail="" if status == NotFound.status else detail,
        advice=_ADVICE.get(status, ""),
        number=status,
    )
    response.headers.update({**NOSNIFF, **(headers or {})})
    return response


def refuse(scope: Scope, error: TooManyRequests) -> Response:
    """Return the response to a request that admission refuses: JSON, or a page for a browser."""
    response = refusals.refuse(scope, error)
    request = Request(scope)
    if not wants_page(request):
        return response
    return show_error(
        request, error.status, error.detail, {"Retry-After": response.headers["Retry-After"]}
    )
