"""Routes for who a token is, and for the tokens and stars of its person."""

from __future__ import annotations

from datetime import datetime

from fastapi import status
from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import (
    ActsForPerson,
    IsPersonal,
    ReadsForPerson,
    Secret,
    UsesDatabase,
)
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import (
    CreatedTokenAnswer,
    NewWorkspaceToken,
    PersonAnswer,
    TokenAnswer,
    TokenList,
    WorkspaceAnswer,
    new_token_answer,
)
from tbservice.auth import grants, tokens
from tbservice.auth.grants import acting_person
from tbservice.experiments import bookmarks
from tbservice.types.grants import Scope

router = make_router(prefix="/api/v1/me", tags=["me"])


class OwnTokenAnswer(BaseModel):
    """The token of the request."""

    id: str | None = Field(description="null for an anonymous share link")
    scopes: list[Scope]
    label: str | None = Field(description="null for a token of one experiment")
    expires_at: datetime | None
    experiment_id: str | None = Field(description="The only experiment it is for; null: all")


class MeAnswer(BaseModel):
    """Identity of a token.

    One for a single experiment tells nothing of person and workspace: it may be passed on.
    """

    person: PersonAnswer | None = Field(description="Whom it acts for; null for a machine's token")
    token: OwnTokenAnswer
    workspace: WorkspaceAnswer | None


@router.get("")
def show_me(secret: Secret, database: UsesDatabase) -> MeAnswer:
    """Return what the token of the request is for."""
    with database.without_transaction() as db:
        principal = grants.identify(db, secret)
        # A token of one experiment may be passed on, and says nothing of person and workspace.
        use = tokens.get_use(db, principal) if principal.experiment_id is None else None
    token = OwnTokenAnswer(
        id=principal.token_id,
        scopes=sorted(principal.scopes, key=list(Scope).index),
        label=None if use is None else use.label,
        expires_at=principal.expires_at,
        experiment_id=principal.experiment_id,
    )
    if use is None or principal.workspace_id is None:
        return MeAnswer(person=None, token=token, workspace=None)
    workspace = WorkspaceAnswer(
        workspace_id=principal.workspace_id, name=use.workspace_name, role=use.role
    )
    person = None if use.person is None else PersonAnswer.model_validate(use.person)
    return MeAnswer(person=person, token=token, workspace=workspace)


@router.get("/tokens")
def list_own_tokens(grant: ActsForPerson, database: UsesDatabase) -> TokenList:
    """List the tokens that act for the same person in the same workspace, newest first.

    Needs the scope admin. Expired and revoked ones are listed for about 90 days.
    """
    with database.transaction(grant) as db:
        listed = tokens.list_personal_tokens(db, acting_person(grant), grant.workspace_id)
    return TokenList(tokens=[TokenAnswer.model_validate(token) for token in listed])


@router.post("/tokens", status_code=status.HTTP_201_CREATED)
def create_own_token(
    grant: ActsForPerson, new: NewWorkspaceToken, database: UsesDatabase
) -> CreatedTokenAnswer:
    """Create another token that acts for the same person in the same workspace.

    Needs the scope admin. The new token ends with this one at the latest; without `expires_at`, at
    the same time. The response contains the secret, which cannot be read again. The token is
    revoked when the person's role permits less, and when they leave.
    """
    with database.transaction(grant) as db:
        token, secret = tokens.create_token_by_token(
            db, grant, new.scopes, new.label, new.expires_at
        )
    return new_token_answer(token, secret)


@router.delete("/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_own_token(grant: ActsForPerson, token_id: str, database: UsesDatabase) -> None:
    """Revoke a token of the same person in the same workspace, with immediate effect.

    Needs the scope admin. Repeating the request changes nothing.
    """
    with database.transaction(grant) as db:
        tokens.revoke_personal_token(db, acting_person(grant), token_id, grant.workspace_id)


@router.delete("/token", status_code=status.HTTP_204_NO_CONTENT)
def revoke_this_token(grant: IsPersonal, database: UsesDatabase) -> None:
    """Revoke the token that the request is made with: log out.

    Its scope does not matter, but it must be a person's token for a workspace: many share a
    machine's and an experiment's.
    """
    with database.transaction(grant) as db:
        tokens.revoke_personal_token(db, acting_person(grant), grant.token_id, grant.workspace_id)


@router.put("/stars/{experiment_id}", status_code=status.HTTP_204_NO_CONTENT)
def star_experiment(grant: ReadsForPerson, experiment_id: str, database: UsesDatabase) -> None:
    """Star an experiment of the token's workspace for its person.

    Repeating the request changes nothing. `GET /experiments?starred=true` lists them.
    """
    with database.transaction(grant) as db:
        bookmarks.star_own(db, grant, experiment_id, is_starred=True)


@router.delete("/stars/{experiment_id}", status_code=status.HTTP_204_NO_CONTENT)
def unstar_experiment(grant: ReadsForPerson, experiment_id: str, database: UsesDatabase) -> None:
    """Take the star of the token's person from an experiment; without one, nothing changes."""
    with database.transaction(grant) as db:
        bookmarks.star_own(db, grant, experiment_id, is_starred=False)
