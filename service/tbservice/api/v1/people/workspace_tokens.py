"""Routes for the tokens of a whole workspace: create, list, revoke."""

from __future__ import annotations

from typing import Annotated

from fastapi import status

from tbservice import limits
from tbservice.api.http.dependencies import MayManage, UsesDatabase
from tbservice.api.http.request_models import After, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import (
    CreatedTokenAnswer,
    NewWorkspaceToken,
    TokenAnswer,
    TokenPage,
    new_token_answer,
)
from tbservice.auth import tokens

router = make_router(prefix="/api/v1/workspaces/{workspace_id}/tokens", tags=["workspaces"])


@router.post("", status_code=status.HTTP_201_CREATED)
def create_workspace_token(
    grant: MayManage, new: NewWorkspaceToken, database: UsesDatabase
) -> CreatedTokenAnswer:
    """Create a machine's token for the whole workspace.

    Needs an owner's token with the scope admin; a machine's cannot create others, so that revoking
    it ends what it could do. The response contains the secret, which cannot be read again. The
    token stays when who created it leaves. Repeating the request creates another token.
    """
    with database.transaction(grant) as db:
        token, secret = tokens.create_workspace_token(
            db, grant, new.scopes, new.label, new.expires_at
        )
    return new_token_answer(token, secret)


@router.get("")
def list_workspace_tokens(
    grant: MayManage,
    database: UsesDatabase,
    after: After = None,
    limit: Annotated[int, page_limit("tokens")] = limits.PAGE_ITEMS_MAX,
) -> TokenPage:
    """List the tokens for the whole workspace, of machines and of its members, newest first.

    Expired and revoked tokens are listed for about 90 days.
    """
    with database.snapshot(grant) as db:
        page, following = tokens.list_workspace_tokens(db, grant, after, limit)
    return TokenPage(tokens=[TokenAnswer.model_validate(token) for token in page], next=following)


@router.delete("/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_workspace_token(grant: MayManage, token_id: str, database: UsesDatabase) -> None:
    """Revoke a token for the whole workspace, with immediate effect.

    Repeating the request changes nothing.
    """
    with database.transaction(grant) as db:
        tokens.revoke_workspace_token(db, grant, token_id)
