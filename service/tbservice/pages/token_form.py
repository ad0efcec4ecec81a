"""The form that stands where a page is not open: it asks for tokens, and says nothing of what there is."""

from __future__ import annotations

import html
import re
from pathlib import Path
from string import Template
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tbservice import limits
from tbservice.api.http.body import read_body
from tbservice.api.http.security_headers import content_hash
from tbservice.errors import Forbidden
from tbservice.pages import page_auth

_ACCESS_ENDED: Final = (
    "Your access has ended: the link or token you came with has expired or was revoked."
)

_FORM_TEMPLATE: Final = Path(__file__).with_name("token_form.html").read_text(encoding="utf-8")
_POLICY: Final = (
    f"default-src 'none'; style-src {content_hash(_FORM_TEMPLATE, 'style')}; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_TOKEN: Final = re.compile("tbh_[0-9A-Za-z]{38}")
_BYTES_MAX: Final = 64 * limits.KIB
_FIELDS_MAX: Final = 10

_EXPERIMENT: Final = {
    "title": "Open this experiment",
    "heading": "This experiment needs a token",
    "explanation": "It is private, or there is no such experiment: its address may be mistyped, or it was deleted. If "
    "somebody shared it with you, open the whole link they sent, or paste it here; when the link has expired, ask them "
    "for a new one. If it is yours, a token of your own opens it too: <code>tbupload share</code> makes a link.",
    "label": "Token or share link",
    "button": "Open the experiment",
    "remembered": "it may read this experiment",
    "refused": "This token does not open this experiment.",
}
_COMPARISON: Final = {
    "title": "Open this comparison",
    "heading": "This comparison needs a token",
    "explanation": "At least one of its experiments is private, or there is no such experiment: its id may be "
    "mistyped, or it was deleted. Paste a token or share link for each private one, one after the other with a space "
    "between them; a token of a whole workspace opens all of its experiments.",
    "label": "Tokens or share links",
    "button": "Open the comparison",
    "remembered": "it may read these experiments",
    "refused": "These tokens do not open every experiment of this comparison.",
}


def ask_for_token(request: Request, action: str, *, is_refused: bool = False) -> Response:
    """The form, with 401, that sends to the page at `action`; the same for what does not exist as for what is private.

    It says why, when the tokens that were offered were refused, or the browser's access has ended.
    """
    words = _COMPARISON if "comparison" in request.path_params else _EXPERIMENT
    error = (
        words["refused"]
        if is_refused
        else _ACCESS_ENDED
        if f"{page_auth.COOKIE}=" in request.headers.get("cookie", "")
        else ""
    )
    is_invalid = str(is_refused).lower()
    page = Template(_FORM_TEMPLATE).substitute(
        words,
        action=html.escape(action),
        error=f'<p class="error" id="error" role="alert">{error}</p>' if error else "",
        field=f'aria-describedby="{"error " if error else ""}hint" aria-invalid="{is_invalid}"',
    )
    headers = {
        "Content-Security-Policy": _POLICY,
        "Cache-Control": "no-store",
        "WWW-Authenticate": "Bearer",
    }
    return HTMLResponse(page, status_code=401, headers=headers)


async def parse_tokens(request: Request) -> list[str]:
    """The tokens in what was pasted into the form, be it whole links; none where nothing looks like one."""
    # Another site's form could only make this browser see what that site may see; still, it is not ours.
    if request.headers.get("sec-fetch-site") not in {None, "same-origin", "none"}:
        raise Forbidden("this form belongs to another site")
    body = await read_body(request, _BYTES_MAX, limits.REQUEST_BODY_SECONDS_MAX)
    fields = parse_qs(body.decode("latin-1"), max_num_fields=_FIELDS_MAX)
    return _TOKEN.findall(" ".join(fields.get("token", [])))
