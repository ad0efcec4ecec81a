"""Queries on `members`: the roles of people in workspaces."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.auth.tables import suspensions
from tbservice.db.database import set_local
from tbservice.db.suspensions import select_suspension
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import Member, Membership, Person, Role
from tbservice.types.suspensions import Suspendable, subject_of

_MEMBERS: Final = """
    SELECT u.user_id, u.name, u.email, u.email_key IS NOT NULL AS is_confirmed, m.role,
        m.created_at
    FROM members AS m JOIN users AS u ON u.user_id = m.user_id
    WHERE m.workspace_id = :workspace_id
"""


def lock_workspace(db: Connection, workspace_id: WorkspaceId) -> str | None:
    """Return the name of a workspace, or None; members of it do not change until the end.

    Every change of its members takes this lock first, so that they happen one after another: two
    last owners cannot both leave. Uploads, which only refer to the workspace, do not wait.

    An UPDATE locks the row on each node of a cluster, whose nodes commit one after another. After
    it, a transaction sees the changes of the others on every node.
    """
    statement = text("""
        UPDATE workspaces SET name = name WHERE workspace_id = :workspace_id RETURNING name
    """)
    return db.execute(statement, {"workspace_id": workspace_id}).scalar_one_or_none()


def lock_open_workspace(db: Connection, workspace_id: WorkspaceId) -> bool:
    """Lock a workspace; return False if there is none, or it is deleted."""
    # Two statements: the second one sees what was committed while the lock was waited for.
    name = lock_workspace(db, workspace_id)
    subject = subject_of(Suspendable.WORKSPACE, str(workspace_id))
    suspension = suspensions.find_broadest(db, [subject])
    return bool(name) and not (suspension is not None and suspension.is_deletion)


def put(db: Connection, workspace_id: WorkspaceId, user_id: UserId, role: Role) -> None:
    """Make a user a member with this role, or change the role."""
    db.execute(
        text("""
            INSERT INTO members (workspace_id, user_id, role)
            VALUES (:workspace_id, :user_id, :role)
            ON CONFLICT (workspace_id, user_id) DO UPDATE SET role = excluded.role
        """),
        {"workspace_id": workspace_id, "user_id": user_id, "role": role.value},
    )


def delete(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> None:
    """Remove a member. Idempotent."""
    statement = text("DELETE FROM members WHERE workspace_id = :workspace_id AND user_id = :id")
    db.execute(statement, {"workspace_id": workspace_id, "id": user_id})


def find_role(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, *, lock: bool = False
) -> Role | None:
    """Return the role of a user; None if they are no member.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        user_id: The user.
        lock: The role does not change until the transaction ends.
    """
    if lock:
        lock_workspace(db, workspace_id)
    statement = text("""
        SELECT role FROM members WHERE workspace_id = :workspace_id AND user_id = :user_id
    """)
    values = {"workspace_id": workspace_id, "user_id": user_id}
    role = db.execute(statement, values).scalar_one_or_none()
    return None if role is None else Role(role)


def has_other_owner(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> bool:
    """Return whether someone else owns the workspace who is neither disabled nor suspended."""
    suspension = select_suspension(db, "'person/' || m.user_id")
    statement = text(f"""
        SELECT EXISTS (SELECT FROM members AS m JOIN users AS u ON u.user_id = m.user_id
            WHERE m.workspace_id = :workspace_id AND m.role = 'owner' AND m.user_id <> :user_id
                AND NOT u.is_disabled AND {suspension} IS NULL)
    """)  # noqa: S608 - constants
    values = {"workspace_id": workspace_id, "user_id": user_id}
    return bool(db.execute(statement, values).scalar_one())


def count(db: Connection, workspace_id: WorkspaceId) -> int:
    """Return the number of members of a workspace."""
    statement = text("SELECT count(*) FROM members WHERE workspace_id = :workspace_id")
    return int(db.execute(statement, {"workspace_id": workspace_id}).scalar_one())


def list_members(db: Connection, workspace_id: WorkspaceId) -> list[Member]:
    """Return the members of a workspace, those who joined first first."""
    statement = text(f"{_MEMBERS} ORDER BY m.created_at, m.user_id")
    return [_member(row) for row in db.execute(statement, {"workspace_id": workspace_id})]


def find_member(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> Member | None:
    """Return a member, or None."""
    statement = text(f"{_MEMBERS} AND m.user_id = :user_id")
    values = {"workspace_id": workspace_id, "user_id": user_id}
    row = db.execute(statement, values).one_or_none()
    return None if row is None else _member(row)


def list_of_user(
    db: Connection, user_id: UserId, *, with_deleted: bool = False
) -> list[Membership]:
    """Return the workspaces that a user is a member of, by name.

    With `with_deleted`, also deleted ones that are not erased yet. The rest of the transaction sees
    the memberships of this user.
    """
    set_local(db, "user_id", user_id)
    suspension = select_suspension(db, "'workspace/' || w.workspace_id")
    statement = text(f"""
        SELECT w.workspace_id, w.name, m.role
        FROM members AS m JOIN workspaces AS w ON w.workspace_id = m.workspace_id
        WHERE m.user_id = :user_id
            AND (:with_deleted OR coalesce({suspension}, '.') NOT LIKE '%' || chr(10))
        ORDER BY w.name, w.workspace_id
    """)  # noqa: S608 - constants
    rows = db.execute(statement, {"user_id": user_id, "with_deleted": with_deleted})
    return [Membership(WorkspaceId(row.workspace_id), row.name, Role(row.role)) for row in rows]


def _member(row: Row[Any]) -> Member:
    person = Person(UserId(row.user_id), row.name, row.email)
    return Member(person, row.is_confirmed, Role(row.role), row.created_at)
