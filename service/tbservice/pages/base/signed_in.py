"""Browser sessions of requests to our own pages: who is signed in, and their forms.

Routes of pages take `SignedIn` or `MaybeSignedIn`; those that a form posts to take `SignedInForm`
too, or `OpenForm` if it changes nothing of a person. A page passes `session.secret` to
`auth/grants.py` for all else.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request
from sqlalchemy import Connection
from starlette.responses import JSONResponse, Response

from tbservice import limits
from tbservice.admission.callers import session_cookie, session_cookie_name
from tbservice.api.http.dependencies import get_database, get_settings
from tbservice.auth import people, sessions
from tbservice.errors import Forbidden, ServiceError, Unauthenticated
from tbservice.pages.base.csrf import check_script, is_navigation
from tbservice.pages.base.forms import FormFields, read_form
from tbservice.pages.base.frame import set_person_session
from tbservice.pages.base.person_session import PersonSession
from tbservice.types.identifiers import Json
from tbservice.types.people import Person


class SignInRequired(Unauthenticated):
    """Nobody is signed in: `server/app.py` redirects to the page to sign in."""


def find_person_session(request: Request) -> PersonSession | None:
    """Return who is signed in, and record it for `frame.render`; None if nobody is.

    One who is suspended is nobody; a page for people alone says why.

    Raises Forbidden if a script or a frame asks: on the same origin, TensorBoard's page shows what
    others uploaded, and no script that got into it may read the pages of its reader.
    """
    secret = session_cookie(request)
    if secret is None:
        return None
    if not is_navigation(request.headers):
        raise Forbidden("this page is for its reader, not for a script or a frame")
    return _find(request, secret)


def _find(request: Request, secret: str) -> PersonSession | None:
    with get_database(request).transaction() as db:
        try:
            found = sessions.find_session(db, secret)
        except Forbidden as error:
            request.scope[_SUSPENDED] = error
            return None
        if found is None:
            return None
        memberships = tuple(people.list_memberships(db, found.person.user_id))
    session = PersonSession(
        found.person,
        found.session_id,
        secret,
        memberships,
        found.last_workspace_id,
        found.is_operator,
    )
    set_person_session(request, session)
    return session


MaybeSignedIn = Annotated[PersonSession | None, Depends(find_person_session)]
"""Session of the person who is signed in; None if nobody is."""


_SUSPENDED: Final = "tbhub.suspended"
"""Key of the ASGI scope for the error of a suspended person's session."""


def sign_in_error(request: Request) -> ServiceError:
    """Return the error of a page for people: SignInRequired, or why the person is suspended."""
    suspended: ServiceError | None = request.scope.get(_SUSPENDED)
    return suspended or SignInRequired("sign in first")


def require_person_session(request: Request, session: MaybeSignedIn) -> PersonSession:
    """Return who is signed in. Raises the `sign_in_error` if nobody is."""
    if session is None:
        raise sign_in_error(request)
    return session


SignedIn = Annotated[PersonSession, Depends(require_person_session)]
"""Session of the person who is signed in; without one, the answer redirects to the sign-in page."""


def _require_script_session(request: Request) -> PersonSession:
    secret = session_cookie(request)
    if secret is None:
        raise Unauthenticated("sign in first")
    check_script(request.headers, secret)
    session = _find(request, secret)
    if session is None:
        raise Unauthenticated("sign in first")
    return session


ScriptOfSignedIn = Annotated[PersonSession, Depends(_require_script_session)]
"""Session of the person whose page's script asks (`csrf.check_script`); no window gets an answer.

Raises Unauthenticated if nobody is signed in.
"""


def answer_script(content: Json) -> Response:
    """Return an answer to the script of a page of ours: for no other origin, and not stored."""
    headers = {
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return JSONResponse(content, headers=headers)


async def _read_signed_in_form(request: Request, session: SignedIn) -> FormFields:
    return await read_form(request, session)


async def _read_open_form(request: Request) -> FormFields:
    return await read_form(request, None)


SignedInForm = Annotated[FormFields, Depends(_read_signed_in_form)]
"""The fields of a form of the person who is signed in, checked as `read_form` does."""

OpenForm = Annotated[FormFields, Depends(_read_open_form)]
"""The fields of a form that needs no session: to sign in."""


def start_session(
    db: Connection, request: Request, response: Response, person: Person, by: str
) -> None:
    """Sign a person in: open a browser session and set its cookie on the response.

    The session that the browser had before ends. In the transaction that uses up what the person
    signs in with, so that a failure leaves both as they were. `by` is for the audit log.

    Raises Forbidden for a person who is disabled.
    """
    address = request.client.host if request.client else ""
    sessions.close_session(db, session_cookie(request))
    secret = sessions.open_session(
        db, person.user_id, request.headers.get("user-agent", ""), address, by
    )
    response.set_cookie(
        session_cookie_name(request),
        secret,
        max_age=limits.PERSON_SESSION_SECONDS_MAX,
        secure=is_https(request),
        httponly=True,
        samesite="lax",
    )


def end_session(request: Request, response: Response) -> None:
    """Sign out: end the browser session of the request's cookie, and remove the cookie."""
    with get_database(request).transaction() as db:
        sessions.close_session(db, session_cookie(request))
    response.delete_cookie(
        session_cookie_name(request), secure=is_https(request), httponly=True, samesite="lax"
    )


def is_https(request: Request) -> bool:
    """Return whether browsers reach the service over TLS."""
    return get_settings(request).public_url.startswith("https:")
