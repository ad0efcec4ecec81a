"""Routes for the tokens of an experiment: create, list, revoke."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, status
from pydantic import FailFast, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayAdminister, UsesDatabase
from tbservice.api.http.request_models import After, FewFields, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import (
    CreatedTokenAnswer,
    EndTime,
    TokenAnswer,
    TokenPage,
    new_token_answer,
)
from tbservice.auth import tokens
from tbservice.types.grants import Scope

router = make_router(prefix="/api/v1/experiments/{experiment_id}/tokens", tags=["tokens"])


class NewToken(FewFields):
    """The properties of a token to create."""

    # FailFast: one error instead of half a million for a body of 1 MiB with wrong scopes.
    scopes: Annotated[list[Literal["append", "read"]], FailFast()] = Field(
        min_length=1, description="`append`, `read`, or both"
    )
    label: str = Field(default="", max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    expires_at: EndTime = None


@router.post("", status_code=status.HTTP_201_CREATED)
def create_token(grant: MayAdminister, new: NewToken, database: UsesDatabase) -> CreatedTokenAnswer:
    """Create a token that may append to this experiment, read it, or both.

    The response contains the secret, which is stored as a hash and cannot be read again. Repeating
    the request creates another token.
    """
    with database.transaction(grant) as db:
        token, secret = tokens.create_token(
            db, grant, map(Scope, new.scopes), new.label, new.expires_at
        )
    return new_token_answer(token, secret)


@router.get("")
def list_tokens(
    grant: MayAdminister,
    database: UsesDatabase,
    after: After = None,
    limit: Annotated[int, page_limit("tokens")] = limits.PAGE_ITEMS_MAX,
    sessions: Annotated[
        bool,
        Query(
            description="List the tokens of browser sessions instead; they are not listed otherwise"
        ),
    ] = False,
) -> TokenPage:
    """List the experiment's tokens, newest first.

    Expired and revoked tokens are listed for 90 days. Browser sessions have tokens of their own:
    when a page is opened with a token that can do more than read, the browser gets a read-only
    token that expires after 12 hours.
    """
    with database.snapshot(grant) as db:
        page, following = tokens.list_tokens(db, grant, after, limit, sessions=sessions)
    return TokenPage(tokens=[TokenAnswer.model_validate(token) for token in page], next=following)


@router.delete("/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_token(grant: MayAdminister, token_id: str, database: UsesDatabase) -> None:
    """Revoke a token, with immediate effect; repeating the request changes nothing."""
    with database.transaction(grant) as db:
        tokens.revoke_token(db, grant, token_id)
