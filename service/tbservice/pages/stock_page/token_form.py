"""The form that asks for tokens when a page may not be read; it does not say whether it exists."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice import limits
from tbservice.admission import callers
from tbservice.api.http.body import read_body
from tbservice.api.http.security_headers import content_hash
from tbservice.errors import Forbidden
from tbservice.pages.base.content_origin import is_content_origin, public_site, redirect_to_public
from tbservice.pages.base.csrf import is_navigation
from tbservice.pages.stock_page import page_auth

_ACCESS_ENDED: Final = (
    "Your access has ended: the link or token you used has expired or was revoked."
)

_FORM_TEMPLATE: Final = Path(__file__).with_name("token_form.html").read_text(encoding="utf-8")
_POLICY: Final = (
    f"default-src 'none'; style-src {content_hash(_FORM_TEMPLATE, 'style')}; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_TOKEN: Final = re.compile("tbh_[0-9A-Za-z]{38}")
_NO_TOKEN: Final = [""]
"""What the public origin offers for a reader who is not signed in there: see `hand_over.py`."""

_BYTES_MAX: Final = 64 * limits.KIB
_FIELDS_MAX: Final = 10

_EXPERIMENT: Final = {
    "title": "Open this experiment",
    "heading": "This experiment needs a token",
    "explanation": "The experiment is private or does not exist: the address may be mistyped, or "
    "the experiment was deleted. If somebody shared it with you, open the complete link that they "
    "sent, or paste it here; if the link has expired, ask them for a new one. If it is yours, use "
    "your own token, or make a link with <code>tbupload share</code>.",
    "label": "Token or share link",
    "button": "Open the experiment",
    "cookie_right": "read this experiment",
    "refused": "This token does not open this experiment.",
}
_COMPARISON: Final = {
    "title": "Open this comparison",
    "heading": "This comparison needs a token",
    "explanation": "At least one of its experiments is private or does not exist: its id may be "
    "mistyped, or it was deleted. Paste a token or share link for each private experiment, "
    "separated by spaces; the token of a workspace opens all of its experiments.",
    "label": "Tokens or share links",
    "button": "Open the comparison",
    "cookie_right": "read these experiments",
    "refused": "These tokens do not open every experiment of this comparison.",
}


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
    texts = _COMPARISON if "comparison" in request.path_params else _EXPERIMENT
    error = (
        texts["refused"]
        if is_refused
        else _ACCESS_ENDED
        if f"{page_auth.COOKIE}=" in request.headers.get("cookie", "")
        else ""
    )

    is_invalid = str(is_refused).lower()
    page = Template(_FORM_TEMPLATE).substitute(
        texts,
        action=html.escape(action),
        error=f'<p class="error" id="error" role="alert">{error}</p>' if error else "",
        sign_in=_sign_in_line(request),
        field=f'aria-describedby="{"error " if error else ""}hint" aria-invalid="{is_invalid}"',
    )

    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-store",
        "WWW-Authenticate": "Bearer",
    }
    return HTMLResponse(page, status_code=401, headers=headers)


def _sign_in_line(request: Request) -> str:
    """Return a line for members of the workspace, who need no token; "" if one is signed in."""
    if callers.session_cookie(request) is not None:
        return ""
    query = urlencode({"next": page_auth.page_path(request)})
    address = html.escape(f"{public_site(request)}/sign-in?{query}")
    return (
        '<p class="hint">Are you a member of its workspace? '
        f'<a href="{address}">Sign in</a> instead.</p>'
    )


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
