"""The page of a comparison: an experiment's page, once the address names one in the one way of writing it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tbservice.errors import MalformedRequest
from tbservice.pages import message_pages, page_auth
from tbservice.reading import comparison_spec
from tbservice.tensorboard import page


def show_page(request: Request) -> Response:
    """GET: the page, or one that says what is wrong with the address."""
    try:
        comparison_spec.parse(request.path_params["comparison"])
    except MalformedRequest as error:
        return message_pages.show_invalid_comparison(error.detail)
    path = page_auth.page_path(request)
    # A browser sends the cookie by the letters of the path: as `%3A`, a colon would be another one.
    if not request.scope["raw_path"].decode("latin-1").endswith(path):
        query = request.url.query
        address = request.scope["root_path"].removesuffix("/compare") + path
        return RedirectResponse(
            f"{address}?{query}" if query else address, headers={"Cache-Control": "no-store"}
        )
    return page.show_page(request)
