"""Sign-in at OpenID Connect providers: send the browser there, and receive it back."""

from __future__ import annotations

import secrets
from typing import Annotated, Final, cast

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from tbservice import limits
from tbservice.admission.callers import cookie_values
from tbservice.api.http.dependencies import UsesDatabase
from tbservice.audit.recording import record_sign_in_failure
from tbservice.auth.oidc.sign_in import Redirect, SignIn
from tbservice.db.database import Database
from tbservice.errors import Forbidden, MalformedRequest
from tbservice.pages.base.frame import redirect
from tbservice.pages.base.signed_in import OpenForm, is_https, start_session
from tbservice.pages.sign_in.next_page import safe_next
from tbservice.types.people import Person

SIGN_IN_PARAMETER_CHARS_MAX: Final = 4_096
"""Characters of each parameter that a provider's redirect may have."""

router = APIRouter(prefix="/sign-in/oidc", include_in_schema=False)

_BROWSER_COOKIE: Final = "tbhub_sign_in"
_COOKIE_BYTES: Final = 32

_Parameter = Annotated[str, Query(max_length=SIGN_IN_PARAMETER_CHARS_MAX)]


@router.post("/{provider}")
def begin(request: Request, provider: str, form: OpenForm, database: UsesDatabase) -> Response:
    """Send the browser to the provider; a cookie binds the sign-in to this browser."""
    browser = secrets.token_urlsafe(_COOKIE_BYTES)
    url = _sign_in(request).begin(database, provider, browser, safe_next(form.text("next")))
    response = RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})
    response.set_cookie(
        _cookie_name(request),
        browser,
        max_age=limits.SIGN_IN_SECONDS_MAX,
        secure=is_https(request),
        httponly=True,
        samesite="lax",  # the provider's redirect is a navigation from another site
    )
    return response


@router.get("/{provider}/callback")
def finish(
    request: Request,
    provider: str,
    database: UsesDatabase,
    state: _Parameter = "",
    code: _Parameter = "",
    error: _Parameter = "",
    iss: _Parameter = "",
) -> Response:
    """Sign the person in whom the provider sent back."""
    name = _cookie_name(request)
    browser = next(cookie_values(request.headers.get("cookie", ""), name), None)
    try:
        person, next_path = _finish(
            request, database, provider, browser, Redirect(state, code, error, iss)
        )
    except (Forbidden, MalformedRequest):
        record_sign_in_failure(database, "provider")
        raise
    response = redirect(next_path)
    response.delete_cookie(name, secure=is_https(request), httponly=True, samesite="lax")
    with database.transaction() as db:
        start_session(db, request, response, person, "provider")
    return response


def _finish(
    request: Request, database: Database, provider: str, browser: str | None, sent: Redirect
) -> tuple[Person, str]:
    if browser is None:
        raise Forbidden(
            "this browser has not begun a sign-in, or does not send the cookie of it: sign in again"
        )
    return _sign_in(request).finish(database, provider, browser, sent)


def _sign_in(request: Request) -> SignIn:
    return cast("SignIn", request.app.state.sign_in)


def _cookie_name(request: Request) -> str:
    return f"__Host-{_BROWSER_COOKIE}" if is_https(request) else _BROWSER_COOKIE
