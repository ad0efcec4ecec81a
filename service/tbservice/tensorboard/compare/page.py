"""The page of a comparison: that of an experiment, after its address is checked and normalized."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tbservice.errors import MalformedRequest
from tbservice.pages import message_pages, page_auth
from tbservice.reading import comparison_spec
from tbservice.tensorboard import page


def show_page(request: Request) -> Response:
    """Answer GET with the page, with a 400 page for an invalid address, or with a redirect."""
    try:
        comparison_spec.parse(request.path_params["comparison"])
    except MalformedRequest as error:
        return message_pages.show_invalid_comparison(error.detail)

    # RFC 6265, section 5.1.4: browsers compare a cookie's Path literally, so it would not match an
    # address with `%3A` for the colon. Redirect to the one spelling that the cookie has.
    path = page_auth.page_path(request)
    if not request.scope["raw_path"].decode("latin-1").endswith(path):
        query = request.url.query
        address = request.scope["root_path"].removesuffix("/compare") + path
        return RedirectResponse(
            f"{address}?{query}" if query else address, headers={"Cache-Control": "no-store"}
        )
    return page.show_page(request)
