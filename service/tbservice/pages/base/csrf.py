"""Protection of forms against requests that other sites make (CSRF).

A form of a person who is signed in contains a token that follows from the secret of the browser
session. The secret is random (190 bits) and in an HttpOnly cookie, so that nobody else can compute
the token, and it ends with the session; nothing is stored.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final
from urllib.parse import urlsplit

from markupsafe import Markup
from starlette.datastructures import Headers

from tbservice.errors import Forbidden

FIELD: Final = "csrf"
"""Name of the form's field."""

_PURPOSE: Final = b"tbhub csrf token"
_SCRIPT_PURPOSE: Final = b"tbhub key of the pages' own script"

SCRIPT_HEADER: Final = "X-Tbhub-Page"
"""Header of a request of our pages' own script, with the `script_key`."""


def csrf_token(session_secret: str) -> str:
    """Return the token of a browser session's forms: 64 hexadecimal digits."""
    return hmac.digest(session_secret.encode(), _PURPOSE, hashlib.sha256).hex()


def script_key(session_secret: str) -> str:
    """Return what our own pages tell their script, and what that sends to ask for names.

    TensorBoard's page may be on the same origin, and its scripts can send the cookie, but they read
    no page of a person. The key is no secret of the session: it opens nothing else.
    """
    return hmac.digest(session_secret.encode(), _SCRIPT_PURPOSE, hashlib.sha256).hex()


def check_script(headers: Headers, session_secret: str) -> None:
    """Raise Forbidden unless the script of one of our pages asks, of this browser session.

    Another site can send no such header: the browser asks us first (CORS), and we allow nobody.
    """
    sent = headers.get(SCRIPT_HEADER, "")
    is_own = headers.get("sec-fetch-site", "same-origin") == "same-origin"
    if not is_own or not hmac.compare_digest(script_key(session_secret).encode(), sent.encode()):
        raise Forbidden("this address is for the script of a page of this service: reload the page")


def csrf_field(session_secret: str) -> Markup:
    """Return the hidden field with the token."""
    return Markup('<input type="hidden" name="{}" value="{}">').format(
        FIELD, csrf_token(session_secret)
    )


def check_token(session_secret: str, sent: str) -> None:
    """Raise Forbidden unless the form sent the token of this browser session."""
    if not hmac.compare_digest(csrf_token(session_secret).encode(), sent.encode()):
        raise Forbidden(
            "this form is too old, or comes from another sign-in: go back, reload the page, and "
            "send it again"
        )


def is_navigation(headers: Headers) -> bool:
    """Return whether a person opens an address or sends a form in a window of their browser.

    Not a script, and not a frame of another page. Browsers say so over https and to this machine,
    and scripts cannot change it; a request that says nothing is none of theirs.
    """
    mode, destination = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return mode in {None, "navigate"} and destination in {None, "document"}


def check_origin(headers: Headers, public_url: str) -> None:
    """Raise Forbidden if the headers say that another site sent the request, or a script.

    Browsers send Sec-Fetch-Site over https and to this machine, and Origin with every POST. A
    request with neither comes from no browser.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        is_own = site in {"same-origin", "none"}
    else:
        origin = headers.get("origin")
        own_hosts = {headers.get("host", "").lower(), urlsplit(public_url).netloc.lower()}
        is_own = origin is None or urlsplit(origin).netloc.lower() in own_hosts - {""}
    if not is_own:
        raise Forbidden(
            "the form was sent from another site: open the page here, and send it from there"
        )
    if not is_navigation(headers):
        raise Forbidden("a form of this page is sent by its reader, not by a script or in a frame")
