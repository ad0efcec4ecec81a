"""Queries on `suspensions` of deleted workspaces and people, until they are erased.

Look-ups find them as they find what is suspended. One that is not suspended, too, has no reason.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.schema_parts import has_column
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.people import DeletedWorkspace
from tbservice.types.suspensions import Suspendable

_COLUMNS: Final = "subject, deleted_at, erase_at, deleted_by"


class Deletion(NamedTuple):
    """A row. `subject` is that of `subject_of`; `deleted_by` may restore it, "": administrators."""

    subject: str
    deleted_at: datetime
    erase_at: datetime
    deleted_by: str

    @property
    def object_id(self) -> str:
        """Return the id of the workspace or the person."""
        return self.subject.partition("/")[2]


def exist(db: Connection) -> bool:
    """Return whether the schema has the columns, which a migration may add meanwhile."""
    return has_column(db, "suspensions", "erase_at")


def put(db: Connection, subject: str, deleted_by: str, kept: timedelta) -> Deletion:
    """Mark a thing as deleted, to be erased so much later. One that is: at the earlier time."""
    statement = text(f"""
        INSERT INTO suspensions AS s (subject, reason, deleted_at, erase_at, deleted_by)
        VALUES (:subject, '', now(), now() + :kept, :deleted_by)
        ON CONFLICT (subject) DO UPDATE SET deleted_by = excluded.deleted_by,
            deleted_at = coalesce(s.deleted_at, excluded.deleted_at),
            erase_at = least(s.erase_at, excluded.erase_at)
        RETURNING {_COLUMNS}
    """)  # noqa: S608 - a constant above
    values = {"subject": subject, "deleted_by": deleted_by, "kept": kept}
    return Deletion(*db.execute(statement, values).one())


def lock(db: Connection, subject: str) -> tuple[Deletion, bool] | None:
    """Return a deletion, and whether it is due, as it stays until the transaction ends; or None.

    Who restores and who erases call this: one of them waits for the other, and comes too late.
    """
    statement = text(f"""
        UPDATE suspensions SET subject = subject WHERE subject = :subject AND erase_at IS NOT NULL
        RETURNING {_COLUMNS}
    """)  # noqa: S608 - a constant above
    row = db.execute(statement, {"subject": subject}).one_or_none()
    if row is None:
        return None
    # Not now(), which is when the transaction began.
    moment: datetime = db.execute(text("SELECT clock_timestamp()")).scalar_one()
    return Deletion(*row), row.erase_at <= moment


def restore(db: Connection, subject: str) -> None:
    """Undo the deletion of a thing that is locked. One that is suspended, too, stays so."""
    db.execute(
        text("""
            UPDATE suspensions SET deleted_at = NULL, erase_at = NULL, deleted_by = NULL
            WHERE subject = :subject
        """),
        {"subject": subject},
    )
    forget(db, subject, is_suspended=False)


def release(db: Connection, subject: str) -> bool:
    """Release a thing that is deleted, too; return False if it is none, or not suspended."""
    statement = text("""
        UPDATE suspensions SET reason = ''
        WHERE subject = :subject AND reason <> '' AND erase_at IS NOT NULL
    """)
    return db.execute(statement, {"subject": subject}).rowcount == 1


def forget(db: Connection, subject: str, *, is_suspended: bool = True) -> None:
    """Delete the row of a thing; with `is_suspended` false, unless it has a reason."""
    condition = "" if is_suspended else "AND reason = ''"
    statement = text(f"DELETE FROM suspensions WHERE subject = :subject {condition}")  # noqa: S608 - constants
    db.execute(statement, {"subject": subject})


def list_of_kind(db: Connection, kind: Suspendable, *, is_due: bool = False) -> list[Deletion]:
    """Return the deletions of a kind, or those that are due, the first to be erased first."""
    statement = text(f"""
        SELECT {_COLUMNS} FROM suspensions
        WHERE subject LIKE :pattern AND erase_at IS NOT NULL AND (erase_at < now() OR NOT :is_due)
        ORDER BY erase_at, subject
    """)  # noqa: S608 - a constant above
    values = {"pattern": f"{kind}/%", "is_due": is_due}
    return [Deletion(*row) for row in db.execute(statement, values)]


def list_restorable(db: Connection, user_id: UserId) -> list[DeletedWorkspace]:
    """Return the workspaces that a person owns and may restore, the first to be erased first.

    In a transaction of this person: `members.list_of_user` makes it one.
    """
    statement = text("""
        SELECT w.workspace_id, w.name, s.deleted_at, s.erase_at
        FROM members AS m JOIN workspaces AS w ON w.workspace_id = m.workspace_id
        JOIN suspensions AS s ON s.subject = 'workspace/' || w.workspace_id
        WHERE m.user_id = :user_id AND m.role = 'owner' AND s.reason = '' AND s.deleted_by <> ''
            AND s.erase_at > now()
        ORDER BY s.erase_at, w.workspace_id
    """)
    rows = db.execute(statement, {"user_id": user_id})
    return [DeletedWorkspace(WorkspaceId(row[0]), *row[1:]) for row in rows]
