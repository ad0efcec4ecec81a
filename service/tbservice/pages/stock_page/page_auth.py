"""Access to pages: a token in the Authorization header or the page's cookie, or a browser session.

Every route below `/experiment/<id>/` and `/compare/<names and ids>/` checks access here first, for
data, blobs and scripts alike. A comparison requires the right to read each of its experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tbservice.admission import callers
from tbservice.api.http.dependencies import get_database, get_object_store, get_settings
from tbservice.auth import grants, secrets, sessions, tokens
from tbservice.errors import (
    Forbidden,
    MalformedRequest,
    NotFound,
    ServiceError,
    Suspended,
    Unauthenticated,
)
from tbservice.pages.base.content_origin import is_content_origin
from tbservice.pages.base.csrf import is_navigation
from tbservice.pages.base.signed_in import find_person_session
from tbservice.reading import comparison_spec
from tbservice.reading.comparison import ComparisonReader, Source
from tbservice.reading.comparison_spec import ComparedExperiment
from tbservice.reading.source import ExperimentReader
from tbservice.runs.grouped_reader import GROUPS_SAFE, GroupedReader, parse_groups
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import WorkspaceId

COOKIE: Final = callers.READ_COOKIE

ACCESS_ERRORS: Final = (Unauthenticated, Forbidden, NotFound)
"""Errors that the page answers with the token form: a stranger must not learn which one it was."""

_EXPERIMENT: Final = "experiment_id"
_COMPARISON: Final = "comparison"
_ATTEMPT: Final = "attempt"
_GROUPS: Final = "groups"


def open_source(request: Request) -> Source:
    """Return a reader of the experiment or comparison in the request's path.

    An `Authorization` header takes precedence over the page's cookie, and this over the browser
    session: who follows a link sees what it shows. A cookie that is not valid (any more) is
    ignored.

    Raises:
        Unauthenticated, Forbidden, NotFound, Suspended: one of the experiments may not be read.
        MalformedRequest: the comparison in the path cannot be parsed.
    """
    text = request.path_params.get(_COMPARISON)
    if text is None:
        return open_experiment(request)
    names = [item.name for item in parse_comparison(request)]
    readers = dict(zip(names, _open_readers(request), strict=True))
    groups = request.path_params.get(_GROUPS)
    if groups is None:
        return ComparisonReader(text, readers)
    return GroupedReader(f"{text}/groups/{groups}", readers, parse_groups(groups))


def parse_comparison(request: Request) -> tuple[ComparedExperiment, ...]:
    """Return the experiments of the comparison in the request's path; of groups, one suffices.

    Raises MalformedRequest for an invalid path.
    """
    items_min = comparison_spec.ITEMS_MIN if request.path_params.get(_GROUPS) is None else 1
    return comparison_spec.parse(request.path_params[_COMPARISON], items_min)


def open_experiment(request: Request) -> ExperimentReader:
    """Return a reader of the experiment, and the attempt if there is one, in the request's path.

    Raises as `open_source` does. Whether there is such an attempt is found when points are read.
    """
    (reader,) = _open_readers(request)
    return replace(reader, attempt=request.path_params.get(_ATTEMPT))


def find_workspace(request: Request, source: Source) -> WorkspaceId | None:
    """Return the workspace of the page's first experiment if a member of it is signed in.

    On the content origin, that is known of whom the page's token acts for.
    """
    readers = list(source.readers.values()) if isinstance(source, ComparisonReader) else [source]
    if not isinstance(readers[0], ExperimentReader):
        return None
    grant = readers[0].grant
    if is_content_origin(request):
        return None if grant.user_id is None else grant.workspace_id
    session = find_person_session(request) if is_navigation(request.headers) else None
    if session is None:
        return None
    membership = session.find_membership(grant.workspace_id)
    return None if membership is None else membership.workspace_id


def page_path(request: Request) -> str:
    """Return the path of the request's page, spelled as browsers do."""
    path = cookie_path(request)
    if (attempt := request.path_params.get(_ATTEMPT)) is not None:
        return f"{path}attempt/{attempt}/"
    groups = request.path_params.get(_GROUPS)
    return path if groups is None else f"{path}groups/{quote(groups, safe=GROUPS_SAFE)}/"


def cookie_path(request: Request) -> str:
    """Return the `Path` of the cookie of the request's page: of what pages below it share.

    Those are attempts of an experiment, and groups of a comparison.
    """
    text = request.path_params.get(_COMPARISON)
    return (
        f"/experiment/{request.path_params[_EXPERIMENT]}/"
        if text is None
        else f"/compare/{comparison_spec.quote_spec(text)}/"
    )


def set_read_cookie(response: Response, request: Request, offered: Sequence[str]) -> None:
    """Set a cookie that lets the browser read all experiments in the path, if the tokens allow it.

    The cookie is HttpOnly and contains one token per experiment, which can do no more than read
    it: for a token with more rights, a new read-only one is created. Without a valid token among
    `offered`, the cookie stays as it is.

    Args:
        response: The response to set the cookie on.
        request: Its path names the experiments; its own cookie is used where no token matches.
        offered: Tokens from the address or the form, in any order; invalid ones are ignored.

    Raises:
        Unauthenticated, Forbidden, NotFound: tokens and cookie do not open every experiment.
    """
    pairs = list_page_tokens(request)
    matches = [
        _find_valid_token(request, experiment_id, cookie_token, offered)
        for experiment_id, cookie_token in pairs
    ]

    if any(matches):
        page_tokens = [
            cookie_token if match is None else _make_read_only_token(request, *match)
            for match, (_, cookie_token) in zip(matches, pairs, strict=True)
        ]
        response.set_cookie(
            COOKIE,
            callers.TOKEN_SEPARATOR.join(page_tokens),
            path=cookie_path(request),
            secure=_is_https(request),
            httponly=True,
            samesite="lax",
        )


def leave_link(request: Request) -> Response:
    """Return a redirect to the page's address, for which the browser has no cookie any more.

    Who is signed in then sees what members see, and no longer what a share link shows.
    """
    response = RedirectResponse(cookie_path(request), 303, {"Cache-Control": "no-store"})
    response.delete_cookie(COOKIE, path=cookie_path(request))
    return response


def make_browser_tokens(request: Request) -> list[str]:
    """Return tokens for the content origin, of the person who is signed in.

    One for each experiment in the path that the person is a member for; each reads this experiment
    and ends with the browser session, which has the same one each time. Empty if nobody is signed
    in, and for an invalid path.
    """
    secret = callers.session_cookie(request)
    if secret is None:
        return []
    database = get_database(request)
    try:
        with database.transaction() as db:
            session = sessions.find_session(db, secret)
        experiment_ids = _list_experiment_ids(request)
    except (Forbidden, MalformedRequest):
        return []
    if session is None:
        return []

    made = []
    for experiment_id in experiment_ids:
        try:
            with database.transaction() as db:
                grant = grants.grant_read_by_session(db, experiment_id, secret)
            with database.transaction(grant) as db:
                made.append(tokens.make_session_token(db, grant, session, secret))
        except (*ACCESS_ERRORS, Suspended):  # also of a session that ends meanwhile
            continue
    return made


def find_link_token(request: Request, grant: ReadGrant) -> str:
    """Return the token by which a share link's reader sees the page; "" for other readers."""
    return "" if grant.link is None else next(iter(_cookie_tokens(request)), "")


def _list_experiment_ids(request: Request) -> list[str]:
    """Return the ids of the experiments in the path, in its order."""
    text = request.path_params.get(_COMPARISON)
    if text is None:
        return [request.path_params[_EXPERIMENT]]
    return [item.experiment_id for item in comparison_spec.parse(text, 1)]


def _cookie_tokens(request: Request) -> list[str]:
    """Return the cookie's token for each experiment in the path, "" where it has none."""
    count = len(_list_experiment_ids(request))
    cookie_tokens = callers.page_tokens(request.headers.get("cookie", ""))
    return cookie_tokens if len(cookie_tokens) == count else [""] * count


def _open_readers(request: Request) -> list[ExperimentReader]:
    database, objects = get_database(request), get_object_store(request)
    return [
        ExperimentReader(read_grant(request, *pair), database, objects)
        for pair in list_page_tokens(request)
    ]


def list_page_tokens(request: Request) -> list[tuple[str, str]]:
    """Return the experiments in the request's path, each with the cookie's token for it, or ""."""
    return list(zip(_list_experiment_ids(request), _cookie_tokens(request), strict=True))


def read_grant(request: Request, experiment_id: str, cookie_token: str) -> ReadGrant:
    """Return the right to read of header, cookie, session or nobody. Raises as `open_source`."""
    header = request.headers.get("authorization")
    if header is not None:
        token = grants.require_no_session(_bearer_token(header))
        return _grant(request, experiment_id, token)
    page_token = None if secrets.is_session(cookie_token) else cookie_token
    suspended: ServiceError | None = None
    for secret in filter(None, (page_token, callers.session_cookie(request))):
        try:
            return _grant(request, experiment_id, secret)
        except (*ACCESS_ERRORS, Suspended) as error:
            if error.code == Suspended.code:
                suspended = error
    try:
        return _grant(request, experiment_id, None)
    except ACCESS_ERRORS as error:
        raise suspended or error from None


def _find_valid_token(
    request: Request, experiment_id: str, cookie_token: str, offered: Sequence[str]
) -> tuple[ReadGrant, str, bool] | None:
    """Return grant, token, and whether it is read-only, of the first token that is valid.

    Returns None if none is valid but the request may read the experiment without them; raises as
    `open_source` does if it may not.
    """
    for token in offered:
        try:
            with get_database(request).transaction() as db:
                grant, can_only_read = grants.grant_read_by_token(db, experiment_id, token)
        except ACCESS_ERRORS:
            continue
        return grant, token, can_only_read
    read_grant(request, experiment_id, cookie_token)
    return None


def _make_read_only_token(
    request: Request, grant: ReadGrant, token: str, can_only_read: bool
) -> str:
    """Return the token if it can only read, else create and return one that can only read."""
    if can_only_read:
        return token
    with get_database(request).transaction(grant) as db:
        return tokens.create_session_token(db, grant)


def _grant(request: Request, experiment_id: str, secret: str | None) -> ReadGrant:
    with get_database(request).transaction() as db:
        return grants.grant_read(db, experiment_id, secret)


def _bearer_token(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("the Authorization header must be: Bearer <token>")
    return token.strip()


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https" or get_settings(request).public_url.startswith("https:")
