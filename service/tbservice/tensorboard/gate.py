"""Who may see an experiment's page: the token a request carries, in its header or in the cookie the page set.

Every address under `/experiment/<id>/` asks here first, for data, blobs and scripts alike.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tbservice.domain import access, tokens
from tbservice.errors import Forbidden, NotFound, Unauthenticated
from tbservice.routes.requests import database_of, settings_of
from tbservice.types import ReadGrant

COOKIE: Final = "tbhub_read"

REFUSALS: Final = (Unauthenticated, Forbidden, NotFound)
"""What the page answers with its form: which of them it was is not for a stranger to know."""


def read_grant(request: Request) -> ReadGrant:
    """The right to read the experiment of the request's path; raises Unauthenticated, Forbidden or NotFound.

    An `Authorization` header decides alone. A cookie that does not count (any more) leaves what anyone may do.
    """
    header = request.headers.get("authorization")
    if header is not None:
        return _grant(request, _bearer_token(header))
    cookie = request.cookies.get(COOKIE)
    if cookie is not None:
        try:
            return _grant(request, cookie)
        except REFUSALS:
            pass
    return _grant(request, None)


def remember(response: Response, request: Request, token: str) -> None:
    """Lets the browser read the experiment from now on, if `token` may: by a cookie no script sees.

    The cookie never holds more than the right to read this experiment. Raises as `read_grant` does.
    """
    experiment_id = request.path_params["experiment_id"]
    database = database_of(request)
    with database.transaction() as db:
        grant, can_only_read = access.grant_read_by_token(db, experiment_id, token)
    if not can_only_read:
        with database.transaction(grant.workspace_id) as db:
            token = tokens.create_session_token(db, grant)
    response.set_cookie(
        COOKIE, token, path=f"/experiment/{experiment_id}/", secure=_is_https(request), httponly=True, samesite="lax"
    )


def _grant(request: Request, secret: str | None) -> ReadGrant:
    with database_of(request).transaction() as db:
        return access.grant_read(db, request.path_params["experiment_id"], secret)


def _bearer_token(header: str) -> str:
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("the Authorization header must be: Bearer <token>")
    return token.strip()


def _is_https(request: Request) -> bool:
    return request.url.scheme == "https" or settings_of(request).public_url.startswith("https:")
