"""An experiment's tokens over HTTP: make, list, revoke."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, status
from pydantic import AwareDatetime, BaseModel, ConfigDict, FailFast, Field, field_validator

from tbservice import limits
from tbservice.api.http.dependencies import MayAdminister, UsesDatabase
from tbservice.api.v1.point_queries import FewFields
from tbservice.auth import tokens
from tbservice.types import Scope, Token

router = APIRouter(prefix="/api/v1/experiments/{experiment_id}/tokens", tags=["tokens"])


class NewToken(FewFields):
    """What a token is made from."""

    model_config = ConfigDict(extra="forbid")

    # One error, however many scopes are wrong: a megabyte of them would make half a million.
    scopes: Annotated[list[Literal["append", "read"]], FailFast()] = Field(
        min_length=1, description="`append`, `read`, or both"
    )
    label: str = Field(default="", max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    expires_at: AwareDatetime | None = Field(
        default=None, description="With its time zone; null: never"
    )

    @field_validator("expires_at", mode="before")
    @classmethod
    def _require_text(cls, value: object) -> object:
        """Refuse numbers, which would be taken for seconds since the epoch."""
        if isinstance(value, str | None) and not re.fullmatch(r"[\d.+-]+", value or ""):
            return value
        raise ValueError("must be a date and time with a time zone, as 2030-01-31T12:00:00Z")


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    scopes: list[Scope]
    label: str
    prefix: str = Field(description="How the secret begins")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute")


class NewTokenAnswer(TokenAnswer):
    """A token just made."""

    token: str = Field(description="The secret; it is told only now")


class TokenPage(BaseModel):
    """A page of an experiment's tokens, the newest first."""

    tokens: list[TokenAnswer]
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end")


@router.post("", status_code=status.HTTP_201_CREATED)
def create_token(grant: MayAdminister, new: NewToken, database: UsesDatabase) -> NewTokenAnswer:
    """Makes a token that may append to this experiment, read it, or both."""
    with database.transaction(grant.workspace_id) as db:
        token, secret = tokens.create_token(
            db, grant, map(Scope, new.scopes), new.label, new.expires_at
        )
    return NewTokenAnswer(**_fields(token), token=secret)


@router.get("")
def list_tokens(
    grant: MayAdminister,
    database: UsesDatabase,
    after: Annotated[str | None, Query(description="The `next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=limits.PAGE_ITEMS_MAX)] = limits.PAGE_ITEMS_MAX,
    sessions: Annotated[
        bool,
        Query(
            description="List the tokens of browser sessions instead, which are not among the others"
        ),
    ] = False,
) -> TokenPage:
    """The experiment's tokens, expired and revoked ones too: these are kept for 90 days.

    A browser that was shown a token which can do more than read has one of its own, for 12 hours, in a session.
    """
    with database.snapshot(grant.workspace_id) as db:
        page, following = tokens.list_tokens(db, grant, after, limit, sessions=sessions)
    return TokenPage(tokens=[TokenAnswer(**_fields(token)) for token in page], next=following)


@router.delete("/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_token(grant: MayAdminister, token_id: str, database: UsesDatabase) -> None:
    """Makes a token count no more, from now on."""
    with database.transaction(grant.workspace_id) as db:
        tokens.revoke_token(db, grant, token_id)


def _fields(token: Token) -> dict[str, Any]:
    fields = asdict(token)
    fields["id"] = fields.pop("token_id")
    del fields["experiment_id"]
    return fields
