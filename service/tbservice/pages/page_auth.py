"""Who may see a page: the token a request carries, in its header or in the cookie the page set.

Every address under `/experiment/<id>/` and `/compare/<names and ids>/` asks here first, for data, blobs and scripts
alike. A comparison opens for who may read each of its experiments, and is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tbservice.admission import callers
from tbservice.api.http.dependencies import get_database, get_object_store, get_settings
from tbservice.auth import grants, tokens
from tbservice.errors import Forbidden, NotFound, Unauthenticated
from tbservice.reading import comparison_spec
from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import ExperimentReader, Source
from tbservice.types import ReadGrant

COOKIE: Final = callers.READ_COOKIE

ACCESS_ERRORS: Final = (Unauthenticated, Forbidden, NotFound)
"""What the page answers with its form: which of them it was is not for a stranger to know."""

_EXPERIMENT: Final = "experiment_id"
_COMPARISON: Final = "comparison"


def open_source(request: Request) -> Source:
    """What the request's path names, for who may read all of it; raises Unauthenticated, Forbidden or NotFound.

    An `Authorization` header decides alone. A cookie that does not count (any more) leaves what anyone may do.
    Raises MalformedRequest for a comparison that is none.
    """
    text = request.path_params.get(_COMPARISON)
    if text is None:
        return open_experiment(request)
    return ComparisonReader(
        text,
        dict(
            zip(
                [part.name for part in comparison_spec.parse(text)],
                _open_readers(request),
                strict=True,
            )
        ),
    )


def open_experiment(request: Request) -> ExperimentReader:
    """The experiment that the request's path names; raises as `open_source` does."""
    (reader,) = _open_readers(request)
    return reader


def page_path(request: Request) -> str:
    """The path of the request's page as a browser has it, to which its cookie is bound."""
    text = request.path_params.get(_COMPARISON)
    return (
        f"/experiment/{request.path_params[_EXPERIMENT]}/"
        if text is None
        else f"/compare/{comparison_spec.quote_spec(text)}/"
    )


def set_read_cookie(response: Response, request: Request, offered: Sequence[str]) -> None:
    """Lets the browser read what the path names from now on, if these tokens and what it has open all of it.

    By a cookie no script sees, with a token for each experiment: it never holds more than the right to read that one.
    Raises as `open_source` does.
    """
    pairs = list(zip(_list_experiment_ids(request), _cookie_tokens(request), strict=True))
    found = [
        _find_valid_token(request, experiment_id, kept, offered) for experiment_id, kept in pairs
    ]
    if any(found):
        chosen = [
            kept if one is None else _make_read_only_token(request, *one)
            for one, (_, kept) in zip(found, pairs, strict=True)
        ]
        response.set_cookie(
            COOKIE,
            callers.TOKEN_SEPARATOR.join(chosen),
            path=page_path(request),
            secure=_is_https(request),
            httponly=True,
            samesite="lax",
        )


def _list_experiment_ids(request: Request) -> list[str]:
    """The ids of the experiments that the path names, in its order."""
    text = request.path_params.get(_COMPARISON)
    return (
        [request.path_params[_EXPERIMENT]]
        if text is None
        else [part.experiment_id for part in comparison_spec.parse(text)]
    )


def _cookie_tokens(request: Request) -> list[str]:
    """The cookie's token for each experiment, empty where it has none."""
    count = len(_list_experiment_ids(request))
    kept = callers.page_tokens(request.headers.get("cookie", ""))
    return kept if len(kept) == count else [""] * count


def _open_readers(request: Request) -> list[ExperimentReader]:
    database, objects = get_database(request), get_object_store(request)
    pairs = zip(_list_experiment_ids(request), _cookie_tokens(request), strict=True)
    return [
        ExperimentReader(_read_grant(request, experiment_id, kept), database, objects)
        for experiment_id, kept in pairs
    ]


def _read_grant(request: Request, experiment_id: str, kept: str) -> ReadGrant:
    header = request.headers.get("authorization")
    if header is not None:
        return _grant(request, experiment_id, _bearer_token(header))
    if kept:
        try:
            return _grant(request, experiment_id, kept)
        except ACCESS_ERRORS:
            pass
    return _grant(request, experiment_id, None)


def _find_valid_token(
    request: Request, experiment_id: str, kept: str, offered: Sequence[str]
) -> tuple[ReadGrant, str, bool] | None:
    """The first of the tokens that opens the experiment, its grant, and whether it can do no more than read it.

    None when none of them does and the request may read anyway; raises where it may not.
    """
    for token in offered:
        try:
            with get_database(request).transaction() as db:
                grant, can_only_read = grants.grant_read_by_token(db, experiment_id, token)
        except ACCESS_ERRORS:
            continue
        return grant, token, can_only_read
    _read_grant(request, experiment_id, kept)
    return None


def _make_read_only_token(
    request: Request, grant: ReadGrant, token: str, can_only_read: bool
) -> str:
    """The token itself where it can only read, else a new one that can do no more."""
    if can_only_read:
        return token
    with get_database(request).transaction(grant.workspace_id) as db:
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
