"""The frame of our own pages: templates, their headers, and what each shows of its reader.

Templates escape every value. They extend `base.html`; `_macros.html` has what several use.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tbservice.admission.callers import cookie_values
from tbservice.api.http.dependencies import get_database, get_settings
from tbservice.auth import people
from tbservice.errors import ServiceError
from tbservice.pages.base.csrf import csrf_field, script_key
from tbservice.pages.base.person_session import PersonSession
from tbservice.pages.base.templates import TEMPLATES
from tbservice.pages.sign_in.next_page import safe_next
from tbservice.types.identifiers import WorkspaceId

_STATE: Final = "tbhub.person_session"

_COOKIE_SECONDS: Final = 365 * 24 * 3600
"""Seconds for which a browser keeps a choice, longer than any session."""

_THEME_COOKIE: Final = "tbhub_theme"
THEMES: Final = ("system", "light", "dark")
"""Colours of our own pages; `system` is what the browser prefers."""

_HEADERS: Final = {
    "Cache-Control": "no-store",
    # Not `no-referrer`: with it, browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def set_person_session(request: Request, session: PersonSession) -> None:
    """Record who is signed in, for `render`; the dependencies of `signed_in.py` do it."""
    request.scope[_STATE] = session


def forget_person_session(request: Request) -> None:
    """Show nobody on the page of this request: it is to look like one that is not there."""
    request.scope.pop(_STATE, None)


def render(
    request: Request,
    template: str,
    status: int = 200,
    *,
    error: ServiceError | None = None,
    form_targets: Iterable[str] = (),
    framing: str = "frame-ancestors 'none'",
    **context: Any,
) -> Response:
    """Return a page of a template, with the headers of a page that nobody stores.

    The template also gets `signed_in` (the PersonSession or None), `csrf` (the hidden field that
    every form of a person who is signed in contains), `script_key` for its script, `path` and
    `query` of the request, `here`, the address that shows the page again, the `theme` of this
    browser and all `themes`.

    Args:
        request: A dependency of `signed_in.py` must have run for it; else it shows nobody.
        template: Name of a file in `templates`.
        status: The HTTP status.
        error: What went wrong with a form: the page has its status, and its text as `error`.
        framing: The directive `frame-ancestors` of its policy.
        form_targets: Other origins that a form of the page leads to, also by a redirect.
        context: The template's own values. If it is the page of one workspace, `workspace` is the
            Membership or another object with `workspace_id` and `workspace_name`.
    """
    session: PersonSession | None = request.scope.get(_STATE)
    frame_values = {
        "signed_in": session,
        "has_session_cookie": "tbhub_session=" in request.headers.get("cookie", ""),
        "csrf": Markup("") if session is None else csrf_field(session.secret),
        "script_key": "" if session is None else script_key(session.secret),
        "path": request.url.path,
        "query": request.query_params,
        # Not of an error: pages of things that are not there look alike.
        "here": "/" if status >= HTTPStatus.BAD_REQUEST else safe_next(_find_address(request)),
        "theme": _find_theme(request),
        "themes": THEMES,
        "error": "" if error is None else error.detail,
    }
    page = TEMPLATES.render(template, **(context | frame_values))
    # A form may lead to a page of an experiment, and this to the content origin.
    content_url = get_settings(request).content_url
    targets = [*form_targets, *([content_url] if content_url else [])]
    headers = _HEADERS | {"Content-Security-Policy": _policy(targets, framing)}
    response = HTMLResponse(page, status if error is None else error.status, headers)
    if session is not None and (workspace := context.get("workspace")) is not None:
        _record_workspace(request, session, workspace.workspace_id)
    return response


def frame_ancestors(request: Request, *others: str) -> str:
    """Return the directive `frame-ancestors` with the operator's origins and `others`.

    For TensorBoard's pages and charts: pages of people (accounts, links, tokens) and the token form
    are in no frame, whatever the operator names.
    """
    sources = [*others, *get_settings(request).frame_ancestors] or ["'none'"]
    return f"frame-ancestors {' '.join(sources)}"


def redirect(path: str, **query: str) -> Response:
    """Return the redirect after a form was processed: 303 to a path of this service.

    A page shows what was done by `done=NAME` in the query, and `texts` in its template
    (`_macros.html`: `done`).
    """
    address = f"{path}?{urlencode(query)}" if query else path
    return RedirectResponse(address, status_code=303, headers={"Cache-Control": "no-store"})


def keep_theme(request: Request, response: Response, theme: str) -> None:
    """Let this browser show our pages in one of `THEMES`, by a cookie, which gives no right."""
    response.set_cookie(
        _THEME_COOKIE,
        theme,
        max_age=_COOKIE_SECONDS,
        secure=get_settings(request).public_url.startswith("https:"),
        httponly=True,
        samesite="lax",
    )


def _find_address(request: Request) -> str:
    """Return path and query of a page, "/" of one that answers a form."""
    if request.method != "GET":
        return "/"
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _find_theme(request: Request) -> str:
    values = cookie_values(request.headers.get("cookie", ""), _THEME_COOKIE)
    return next((value for value in values if value in THEMES), THEMES[0])


def _record_workspace(request: Request, session: PersonSession, shown: WorkspaceId) -> None:
    """Let the person's next visit, on any browser, begin with this workspace.

    It writes only when the person goes from one workspace to another.
    """
    if session.last_workspace_id != shown:
        with get_database(request).transaction() as db:
            people.record_workspace(db, session.person.user_id, shown)


def _policy(form_targets: Iterable[str], framing: str) -> str:
    targets = " ".join(["'self'", *form_targets])
    # `blob:` for pictures of experiments, which a script of ours asks the API for with its token.
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"font-src 'self'; connect-src 'self'; form-action {targets}; base-uri 'none'; {framing}"
    )
