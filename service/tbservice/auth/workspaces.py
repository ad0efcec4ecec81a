"""Create, list, rename and configure workspaces, which separate tenants."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import members, people
from tbservice.auth.tables import deletions, users, workspaces
from tbservice.auth.tables import members as member_rows
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import DeletedWorkspace, Membership, Role
from tbservice.types.suspensions import Suspendable

PERSON_WORKSPACES_ITEMS_MAX: Final = 5
"""Workspaces (items) of which a person who owns them can create no more.

Invitations and administrators can make them own more.
"""


def create_workspace(db: Connection, name: str) -> WorkspaceId:
    """Create a workspace that nobody owns yet. For administrators of the service.

    Raises Invalid for a name that is empty or too long.
    """
    _check_name(name)
    workspace_id = workspaces.create(db, name)
    record(db, Act.WORKSPACE_CREATE, workspace_id, str(workspace_id), name=name)
    return workspace_id


def create_for_person(
    db: Connection, user_id: UserId, name: str, *, is_permitted: bool
) -> Membership:
    """Create a workspace that a person owns.

    Args:
        db: A transaction of no workspace.
        user_id: The person.
        name: The workspace's name.
        is_permitted: The setting `people_create_workspaces`.

    Raises:
        Invalid: The name is empty or too long.
        Conflict: They own `PERSON_WORKSPACES_ITEMS_MAX` workspaces.
        Forbidden: They are disabled, or the setting forbids it.
    """
    if not is_permitted:
        raise Forbidden("on this service, its administrator creates the workspaces")
    _check_name(name)
    people.require_enabled(db, user_id)
    users.lock_for_count(db, user_id)
    # Deleted ones, too: otherwise who deletes could go on creating.
    memberships = member_rows.list_of_user(db, user_id, with_deleted=True)
    owned = [each for each in memberships if each.role is Role.OWNER]
    if len(owned) >= PERSON_WORKSPACES_ITEMS_MAX:
        raise Conflict(
            f"you own {len(owned)} workspaces, and a person who owns "
            f"{PERSON_WORKSPACES_ITEMS_MAX} can create no more, also of deleted ones that are not "
            "erased yet: use one of them, give one "
            "away (make another member its owner, then leave), or ask the administrator of this "
            "service to create one"
        )
    workspace_id = workspaces.create(db, name, user_id)
    set_local(db, "workspace_id", str(workspace_id))
    member_rows.put(db, workspace_id, user_id, Role.OWNER)
    record(db, Act.WORKSPACE_CREATE, workspace_id, str(workspace_id), name=name)
    return Membership(workspace_id, name, Role.OWNER)


def list_workspaces(db: Connection) -> list[tuple[WorkspaceId, str]]:
    """Return the id and name of every workspace that is not deleted, the oldest first.

    For administrators.
    """
    deleted = {each.workspace_id for each in list_deleted(db)}
    return [each for each in workspaces.list_all(db) if each[1] and each[0] not in deleted]


def list_deleted(db: Connection) -> list[DeletedWorkspace]:
    """Return the deleted workspaces, the first to be erased first. For administrators."""
    if not deletions.exist(db):
        return []
    names = dict(workspaces.list_all(db))
    return [
        DeletedWorkspace(
            WorkspaceId(int(each.object_id)),
            names[WorkspaceId(int(each.object_id))],
            each.deleted_at,
            each.erase_at,
        )
        for each in deletions.list_of_kind(db, Suspendable.WORKSPACE)
    ]


def get_name(db: Connection, workspace_id: WorkspaceId) -> str:
    """Return the name of a workspace that the caller has a grant for. Raises NotFound."""
    name = workspaces.find_name(db, workspace_id)
    if name is None:
        raise NotFound("there is no such workspace, or it is not yours")
    return name


def rename(db: Connection, grant: OwnerGrant, name: str) -> None:
    """Rename the workspace. Idempotent.

    Raises Invalid for a name that is empty or too long, Forbidden for who is no owner any more.
    """
    _check_name(name)
    members.lock_as_owner(db, grant)
    workspaces.rename(db, grant.workspace_id, name)
    record(db, Act.WORKSPACE_RENAME, grant.workspace_id, str(grant.workspace_id), name=name)


def find_expiry_days(db: Connection, workspace_id: WorkspaceId) -> int | None:
    """Return the days after which new experiments of a workspace expire; None: never."""
    return workspaces.find_expiry_days(db, workspace_id)


def set_expiry_days(db: Connection, grant: OwnerGrant, days: int | None) -> None:
    """Let new experiments that say nothing else expire after so many days; None: never.

    Those that there are stay as they are. Idempotent. Raises Invalid for days out of range,
    Forbidden for who is no owner any more, Conflict before the migration 0030.
    """
    if days is not None and not 1 <= days <= limits.EXPIRY_DAYS_MAX:
        raise Invalid(
            f"new experiments expire after 1 to {limits.EXPIRY_DAYS_MAX:,} days, or never"
        )
    members.lock_as_owner(db, grant)
    workspace_id = grant.workspace_id
    if not workspaces.set_expiry_days(db, workspace_id, days):
        raise Conflict("the database has no expiry of workspaces yet: run 'tbservice migrate'")
    told = "never" if days is None else days
    record(db, Act.WORKSPACE_EXPIRY, workspace_id, str(workspace_id), expires_days=told)


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > limits.EXPERIMENT_NAME_CHARS_MAX or "\0" in name:
        raise Invalid(
            f"a workspace's name has 1 to {limits.EXPERIMENT_NAME_CHARS_MAX} characters, "
            "none of them NUL"
        )
