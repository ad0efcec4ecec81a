"""The form that asks for tokens when a page may not be read; it does not say whether it exists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice import limits
from tbservice.admission import callers
from tbservice.api.http.body import read_body
from tbservice.errors import Forbidden
from tbservice.pages.base.content_origin import is_content_origin, public_site, redirect_to_public
from tbservice.pages.base.csrf import is_navigation
from tbservice.pages.base.templates import TEMPLATES
from tbservice.pages.stock_page import page_auth

_POLICY: Final = (
    f"default-src 'none'; style-src {TEMPLATES.hash_of('stock_page/token_form.html', 'style')}; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_TOKEN: Final = re.compile("tbh_[0-9A-Za-z]{38}")
_NO_TOKEN: Final = [""]
"""Offer of the public origin to a reader who is not signed in there: see `hand_over.py`."""

_BYTES_MAX: Final = 64 * limits.KIB
_FIELDS_MAX: Final = 10


def store_tokens(request: Request, offered: Sequence[str], address: str, action: str) -> Response:
    """Return the redirect to `address` with a cookie for these tokens; else the form again.

    It posts to `action`.
    """
    response = RedirectResponse(address, 303, {"Cache-Control": "no-store"})
    try:
        page_auth.set_read_cookie(response, request, offered[: limits.COMPARISON_ITEMS_MAX])
    except page_auth.ACCESS_ERRORS:
        return ask_for_token(request, action, is_refused=list(offered) != _NO_TOKEN)
    return response


def ask_for_token(request: Request, action: str, *, is_refused: bool = False) -> Response:
    """Return the form with status 401; it posts to `action`, the address of the page.

    On the content origin, who has sent no token goes to the public origin first, where they may be
    signed in (`hand_over.py`).

    The form is the same for what does not exist and for what is private: a stranger must not learn
    which. It has an error line if `is_refused`, or if the request carries a cookie, which then no
    longer gives access.
    """
    may_be_signed_in = request.method == "GET" and is_navigation(request.headers)
    if is_content_origin(request) and may_be_signed_in and "token" not in request.query_params:
        return redirect_to_public(request)
    what = "comparison" if "comparison" in request.path_params else "experiment"
    page = TEMPLATES.render(
        f"stock_page/{what}_token.html",
        action=action,
        is_refused=is_refused,
        has_ended=f"{page_auth.COOKIE}=" in request.headers.get("cookie", ""),
        sign_in=_sign_in_address(request),
    )

    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-store",
        "WWW-Authenticate": "Bearer",
    }
    return HTMLResponse(page, status_code=401, headers=headers)


def _sign_in_address(request: Request) -> str:
    """Return where members of the workspace sign in, who need no token; "" if one is signed in."""
    if callers.session_cookie(request) is not None:
        return ""
    query = urlencode({"next": page_auth.page_path(request)})
    return f"{public_site(request)}/sign-in?{query}"


async def parse_tokens(request: Request) -> list[str]:
    """Return the tokens in the submitted text, which may contain complete links; may be empty.

    Raises Forbidden for a form that another site submits.
    """
    # Login CSRF: another site could only replace the cookie by one for a token that it has itself.
    # Still, the form is for our own pages only.
    if request.headers.get("sec-fetch-site") not in {None, "same-origin", "none"}:
        raise Forbidden(
            "the form was submitted from another site: open the page, and submit it there"
        )
    body = await read_body(request, _BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)
    fields = parse_qs(body.decode("latin-1"), max_num_fields=_FIELDS_MAX)
    return _TOKEN.findall(" ".join(fields.get("token", [])))
