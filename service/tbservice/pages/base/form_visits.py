"""Visits of the address of a form, which a browser's address bar shows after a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tbservice.pages.base.frame import redirect

_PAGES: Final = {
    "/experiment/{experiment_id}/delete": "/experiment/{experiment_id}/about",
    "/experiment/{experiment_id}/token/revoke": "/experiment/{experiment_id}/access",
    "/workspace/{workspace_id}/link/revoke": "/workspace/{workspace_id}/links",
    "/workspace/{workspace_id}/name": "/workspace/{workspace_id}/settings",
    "/workspace/{workspace_id}/token/revoke": "/workspace/{workspace_id}/tokens",
    "/workspace/{workspace_id}/views": "/workspace/{workspace_id}/runs",
}
"""The pages of forms that are not on the next page above."""


def make_routes(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    """Yield a route for GET of each form's address: it redirects to the page with the form.

    That is the next one above, unless `_PAGES` has another. It checks nothing, as the page does:
    what the address names need not be there.
    """
    forms = [route for route in routes if isinstance(route, APIRoute)]
    pages = {route.path for route in forms if "GET" in (route.methods or ())}
    for path in dict.fromkeys(route.path for route in forms):
        if path not in pages:
            page = _PAGES.get(path) or _find_above(path, pages)
            yield Route(path, _Visit(page).answer, methods=["GET"], include_in_schema=False)


class _Visit:
    """The redirect to a page, whose path may have parameters of the form's."""

    def __init__(self, page: str) -> None:
        self._page = page

    def answer(self, request: Request) -> Response:
        names = {name: quote(value, safe="") for name, value in request.path_params.items()}
        return redirect(self._page.format(**names))


def _find_above(path: str, pages: set[str]) -> str:
    while path not in pages:
        path = path.rpartition("/")[0] or "/"
    return path
