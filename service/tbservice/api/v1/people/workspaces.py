"""Routes for a workspace: create, show, change, delete."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, status
from pydantic import Field, StrictInt

from tbservice import limits
from tbservice.api.http.dependencies import (
    ActsForPerson,
    MayManage,
    MaySeeMembers,
    UsesDatabase,
    UsesSettings,
)
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.api.v1.people.token_models import WorkspaceAnswer
from tbservice.auth import deletion, members, workspaces
from tbservice.auth.grants import acting_person
from tbservice.db.database import Database
from tbservice.types.grants import Grant

router = make_router(prefix="/api/v1/workspaces", tags=["workspaces"])


class WorkspaceName(FewFields):
    """The name of a workspace; it need not be unique."""

    name: str = Field(min_length=1, max_length=limits.EXPERIMENT_NAME_CHARS_MAX)


Days = Annotated[StrictInt, Field(ge=1, le=limits.EXPIRY_DAYS_MAX)]


class WorkspaceChange(FewFields):
    """Fields of a workspace to change; an absent or null one is left unchanged."""

    name: str | None = Field(
        default=None, min_length=1, max_length=limits.EXPERIMENT_NAME_CHARS_MAX
    )
    expires_days: Days | Literal["never"] | None = Field(
        default=None,
        description="Days after which new experiments expire that say nothing else, at most "
        f"{limits.EXPIRY_DAYS_MAX:,}; those that there are stay as they are",
    )


class WorkspaceSettingsAnswer(WorkspaceAnswer):
    """A workspace and its settings."""

    expires_days: int | None = Field(
        description="Days after which new experiments expire that say nothing else; null: never"
    )


@router.post("", status_code=status.HTTP_201_CREATED)
def create_workspace(
    grant: ActsForPerson, new: WorkspaceName, database: UsesDatabase, settings: UsesSettings
) -> WorkspaceAnswer:
    """Create a workspace that the person of the token owns.

    Needs a token of a person with the scope admin, which remains one of its own workspace. The
    administrator of the service may have reserved this for themselves (403).
    """
    with database.transaction() as db:
        created = workspaces.create_for_person(
            db,
            acting_person(grant),
            new.name,
            is_permitted=settings.people_create_workspaces,
        )
    return WorkspaceAnswer(
        workspace_id=created.workspace_id, name=created.workspace_name, role=created.role
    )


@router.get("/{workspace_id}")
def show_workspace(grant: MaySeeMembers, database: UsesDatabase) -> WorkspaceSettingsAnswer:
    """Return a workspace. Needs the scope read; a machine's token, admin."""
    return _answer(database, grant)


@router.patch("/{workspace_id}")
def change_workspace(
    grant: MayManage, change: WorkspaceChange, database: UsesDatabase
) -> WorkspaceSettingsAnswer:
    """Rename a workspace, or set when its new experiments expire.

    Needs the scope admin, and of a person, the role owner.
    """
    with database.transaction(grant) as db:
        if change.name is not None:
            workspaces.rename(db, grant, change.name)
        if change.expires_days is not None:
            days = None if change.expires_days == "never" else change.expires_days
            workspaces.set_expiry_days(db, grant, days)
    return _answer(database, grant)


@router.delete("/{workspace_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_workspace(
    grant: MayManage,
    database: UsesDatabase,
    name: Annotated[str, Query(description="The name of the workspace: 422 if it has another")],
) -> None:
    """Delete a workspace with all that it has, for everybody and at once.

    Needs the scope admin and the role owner; a machine's token may not (403). From then on nothing
    of it is there (404), for its tokens, too. For seven days an owner can restore it, on the page
    of their account; then it is erased. The receipt is there for the person who deleted it.
    """
    with database.transaction(grant) as db:
        deletion.delete_workspace(db, grant, name)


def _answer(database: Database, grant: Grant) -> WorkspaceSettingsAnswer:
    with database.snapshot(grant) as db:
        return WorkspaceSettingsAnswer(
            workspace_id=grant.workspace_id,
            name=workspaces.get_name(db, grant.workspace_id),
            role=members.find_role(db, grant.workspace_id, grant.user_id),
            expires_days=workspaces.find_expiry_days(db, grant.workspace_id),
        )
