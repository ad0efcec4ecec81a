"""Delete workspaces and people, and restore them until they are erased.

Nothing of a workspace is changed: look-ups of grants find that it is deleted
(`db/suspensions.py`), so that it is gone from the next request on, and is all back when it is
restored. The eraser does the rest.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import members, people, sessions
from tbservice.auth.suspensions import list_sole_ownerships
from tbservice.auth.tables import deletions
from tbservice.auth.tables import members as member_rows
from tbservice.auth.tables import workspaces as workspace_rows
from tbservice.auth.tables.deletions import Deletion
from tbservice.db.database import set_local
from tbservice.errors import Conflict, Forbidden, Invalid, NotFound
from tbservice.types.experiments import RESTORABLE
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import DeletedWorkspace, Person, Role
from tbservice.types.suspensions import Suspendable, subject_of

FINAL_DELETION_SECONDS: Final = 600
"""Seconds from a final deletion to the erasing: requests that were granted before have ended."""


def delete_workspace(db: Connection, grant: OwnerGrant, name: str) -> None:
    """Delete the workspace, at once for everybody; any owner can restore it for `RESTORABLE`.

    Args:
        db: A transaction of the workspace.
        grant: The right of a person: a machine's token must not end what people own.
        name: Its name, typed by who deletes it.

    Raises:
        Invalid: It has another name.
        Forbidden: A machine acts, or who is no owner any more.
        NotFound: It was deleted before.
        Conflict: The database lacks the migration.
    """
    user_id = members.require_person(grant)
    members.lock_as_owner(db, grant)
    _check_name(db, grant.workspace_id, name)
    _delete_workspace(db, grant.workspace_id, user_id, RESTORABLE)


def delete_any_workspace(
    db: Connection, workspace_id: WorkspaceId, name: str, *, is_final: bool = False
) -> None:
    """Delete a workspace, or take over its deletion: no owner can restore it then.

    For administrators, who can restore it, unless `is_final`: it is erased as soon as requests that
    have begun have ended. Raises Invalid, NotFound and Conflict as `delete_workspace` does.
    """
    _check_name(db, workspace_id, name)
    set_local(db, "workspace_id", str(workspace_id))
    member_rows.lock_workspace(db, workspace_id)
    kept = timedelta(seconds=FINAL_DELETION_SECONDS) if is_final else RESTORABLE
    _delete_workspace(db, workspace_id, UserId(""), kept)


def _check_name(db: Connection, workspace_id: WorkspaceId, name: str) -> None:
    found = workspace_rows.find_name(db, workspace_id)
    if found is None:
        raise NotFound(f"there is no workspace {workspace_id}")
    if found.strip() != name.strip():
        raise Invalid("this is not the name of the workspace: type it as it is shown")


def _delete_workspace(
    db: Connection, workspace_id: WorkspaceId, deleted_by: UserId, kept: timedelta
) -> None:
    _require_table(db)
    deleted = deletions.put(db, _subject(workspace_id), deleted_by, kept)
    erase_at = deleted.erase_at.isoformat()
    record(db, Act.WORKSPACE_DELETE, workspace_id, str(workspace_id), erase_at=erase_at)


def restore_workspace(db: Connection, user_id: UserId | None, workspace_id: WorkspaceId) -> None:
    """Undo the deletion of a workspace, with all that it had.

    Args:
        db: A transaction of the workspace.
        user_id: An owner; None for an administrator.
        workspace_id: The workspace.

    Raises:
        NotFound: It is not deleted, or not theirs.
        Forbidden: An administrator has deleted it.
        Conflict: It is being erased.
    """
    not_found = NotFound("there is no such deleted workspace, or it is not yours")
    role = None if user_id is None else member_rows.find_role(db, workspace_id, user_id)
    if not deletions.exist(db) or (user_id is not None and role is not Role.OWNER):
        raise not_found
    found = deletions.lock(db, _subject(workspace_id))
    if found is None:
        raise not_found
    deletion, is_due = found
    if user_id is not None and not deletion.deleted_by:
        raise Forbidden("an administrator of this service has deleted this workspace: ask them")
    if is_due:
        raise Conflict("this workspace is being erased, and cannot be restored any more")
    deletions.restore(db, deletion.subject)
    record(db, Act.WORKSPACE_RESTORE, workspace_id, str(workspace_id))


def delete_own_account(db: Connection, person: Person, session_id: str, typed: str) -> None:
    """Delete a person at their own wish; an administrator can restore them for `RESTORABLE`.

    Args:
        db: A transaction of no workspace.
        person: Who acts.
        session_id: Their browser session.
        typed: Their e-mail address, or their name if they have none: a confirmation.

    Raises:
        Invalid: They have typed something else.
        Forbidden: They have signed in too long ago.
        Conflict: As `delete_person`.
    """
    if typed.strip().casefold() != (person.email or person.name).strip().casefold():
        raise Invalid("this is not your e-mail address, or without one, your name")
    sessions.check_recent(db, person.user_id, session_id, "delete the account")
    delete_person(db, person.user_id, person.user_id)


def delete_person(
    db: Connection,
    user_id: UserId,
    deleted_by: str = "",
    *,
    is_final: bool = False,
    leaves_workspaces: bool = False,
) -> None:
    """End all that acts for a person; they are erased after `RESTORABLE`, or with `is_final` soon.

    Nothing of other people is lost: who alone owns a workspace must make another member its owner
    first, or delete it; `leaves_workspaces` is for who was erased already. Raises Conflict with the
    names of such workspaces, or if the database lacks the migration.
    """
    people.find_person(db, user_id)
    _require_table(db)
    if not leaves_workspaces and (names := list_sole_ownerships(db, user_id)):
        raise Conflict(
            f"nobody else owns the workspaces {', '.join(map(repr, names))}: make another member "
            "their owner first, or delete them",
            code="last_owner",
        )
    kept = timedelta(seconds=FINAL_DELETION_SECONDS) if is_final else RESTORABLE
    subject = subject_of(Suspendable.PERSON, user_id)
    deleted = deletions.put(db, subject, deleted_by, kept)
    people.end_access(db, user_id)
    record(db, Act.PERSON_DELETE, None, user_id, erase_at=deleted.erase_at.isoformat())


def restore_person(db: Connection, user_id: UserId) -> None:
    """Undo the deletion of a person, who must sign in again and create new tokens.

    For administrators. Raises NotFound for who is not deleted, and Conflict once they are erased.
    """
    found = None
    if deletions.exist(db):
        found = deletions.lock(db, subject_of(Suspendable.PERSON, user_id))
    if found is None:
        raise NotFound("there is no such deleted person")
    if found[1]:
        raise Conflict("this person is being erased, and cannot be restored any more")
    deletions.restore(db, found[0].subject)
    record(db, Act.PERSON_RESTORE, None, user_id)


def list_restorable(db: Connection, user_id: UserId) -> list[DeletedWorkspace]:
    """Return the deleted workspaces that a person can restore, the first to be erased first."""
    if not deletions.exist(db):
        return []
    set_local(db, "user_id", user_id)
    return deletions.list_restorable(db, user_id)


def list_deleted_people(db: Connection) -> set[str]:
    """Return the ids of the people that are deleted and not erased yet. For administrators."""
    if not deletions.exist(db):
        return set()
    return {each.object_id for each in deletions.list_of_kind(db, Suspendable.PERSON)}


def list_due(db: Connection, kind: Suspendable) -> list[str]:
    """Return the ids of the deleted workspaces or people that are to be erased by now."""
    if not deletions.exist(db):
        return []
    return [each.object_id for each in deletions.list_of_kind(db, kind, is_due=True)]


def lock_due(db: Connection, kind: Suspendable, object_id: str) -> Deletion | None:
    """Return the deletion of what is to be erased by now; None if it was restored."""
    found = deletions.lock(db, subject_of(kind, object_id))
    return found[0] if found is not None and found[1] else None


def _require_table(db: Connection) -> None:
    if not deletions.exist(db):
        raise Conflict("the database has no deletions yet: run 'tbservice migrate'")


def _subject(workspace_id: WorkspaceId) -> str:
    return subject_of(Suspendable.WORKSPACE, str(workspace_id))
