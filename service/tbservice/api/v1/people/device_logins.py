"""Routes with which a command logs in that a person approves in a browser (RFC 8628)."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from fastapi import Request, Response, status
from pydantic import BaseModel, Field

from tbservice import limits
from tbservice.admission.callers import client_network
from tbservice.api.http.dependencies import UsesDatabase, UsesSettings
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.auth import device_logins
from tbservice.auth.device_logins import RedeemedLogin
from tbservice.types.grants import Scope

DEVICE_POLL_SECONDS: Final = 3
"""Seconds that a command waits between two questions whether its login was approved."""

router = make_router(prefix="/api/v1/device-logins", tags=["people"])


class NewLogin(FewFields):
    """The login of a command."""

    client: str = Field(
        default="",
        max_length=limits.DEVICE_CLIENT_CHARS_MAX,
        description="What asks, for the person who approves it: program and host",
    )


class CreatedLoginAnswer(BaseModel):
    """A login that has begun."""

    device_code: str = Field(description="The secret with which the command asks for its token")
    user_code: str = Field(description="What the person types at `verification_uri`")
    verification_uri: str
    expires_in: int = Field(description="Seconds until the login ends")
    interval: int = Field(description="Seconds to wait between two questions for the token")


class LoginQuestion(FewFields):
    """The question whether a login was approved."""

    device_code: str = Field(min_length=1, max_length=limits.DEVICE_CLIENT_CHARS_MAX)


class LoginAnswer(BaseModel):
    """The state of a login: `pending` while nobody has answered, then `approved`, with a token."""

    status: Literal["pending", "approved"]
    token: str | None = Field(
        default=None, description="The secret; store it now: it cannot be read again"
    )
    token_id: str | None = None
    scopes: list[Scope] | None = None
    expires_at: datetime | None = Field(default=None, description="null: the token never expires")
    workspace_id: int | None = None
    workspace_name: str | None = None
    person: str | None = Field(default=None, description="Name or e-mail address of who approved")


@router.post("", status_code=status.HTTP_201_CREATED)
def begin_login(
    new: NewLogin, request: Request, database: UsesDatabase, settings: UsesSettings
) -> CreatedLoginAnswer:
    """Begin the login of a command. Needs no token.

    409 while too many logins wait for approval, of the same IPv4 address or IPv6 /64, or in all.
    Show the person `user_code` and `verification_uri`, and ask for the token with `device_code`.
    """
    with database.transaction() as db:
        login = device_logins.begin(db, new.client, client_network(request))
    return CreatedLoginAnswer(
        device_code=login.device_code,
        user_code=login.user_code,
        verification_uri=f"{settings.public_url.rstrip('/')}/device",
        expires_in=limits.DEVICE_LOGIN_SECONDS_MAX,
        interval=DEVICE_POLL_SECONDS,
    )


@router.post(
    "/token",
    responses={202: {"model": LoginAnswer, "description": "Nobody has approved the login yet"}},
)
def redeem_login(
    question: LoginQuestion, database: UsesDatabase, response: Response
) -> LoginAnswer:
    """Return the token of an approved login, once; 202 while nobody has approved it.

    403 if it was denied, 404 if it has expired or was used.
    """
    response.headers["Cache-Control"] = "no-store"
    login = device_logins.redeem(database, question.device_code)
    if login is None:
        response.status_code = status.HTTP_202_ACCEPTED
        return LoginAnswer(status="pending")
    return _answer(login)


def _answer(login: RedeemedLogin) -> LoginAnswer:
    return LoginAnswer(
        status="approved",
        token=login.secret,
        token_id=login.token.token_id,
        scopes=list(login.token.scopes),
        expires_at=login.token.expires_at,
        workspace_id=login.workspace_id,
        workspace_name=login.workspace_name,
        person=login.person.name or login.person.email,
    )
