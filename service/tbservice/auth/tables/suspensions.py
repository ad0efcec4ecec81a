"""Queries on `suspensions`: what an administrator has suspended, and why.

Rows without a reason are of what is deleted: `deletions`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

from tbservice.auth.tables import deletions
from tbservice.db.arrays import encode_array
from tbservice.db.schema_parts import has_table
from tbservice.types.suspensions import Suspension


class SuspensionRow(NamedTuple):
    """A row; `subject` is that of `subject_of`."""

    subject: str
    reason: str
    suspended_at: datetime


def find_broadest(db: Connection, subjects: Iterable[str]) -> Suspension | None:
    """Return the broadest suspension of these things, None if none is suspended."""
    if not has_table(db, "suspensions"):
        return None
    statement = text("""
        SELECT max(subject || chr(10) || reason) FROM suspensions
        WHERE subject = ANY (CAST(:subjects AS text[]))
    """)
    values = {"subjects": encode_array("text", list(subjects))}
    return Suspension.parse(db.execute(statement, values).scalar_one())


def list_all(db: Connection) -> list[SuspensionRow]:
    """Return everything that is suspended, the latest first."""
    statement = text("""
        SELECT subject, reason, suspended_at FROM suspensions WHERE reason <> ''
        ORDER BY suspended_at DESC, subject
    """)
    return [SuspensionRow(*row) for row in db.execute(statement)]


def find(db: Connection, subject: str) -> SuspensionRow | None:
    """Return the suspension of a thing, or None."""
    statement = text("SELECT subject, reason, suspended_at FROM suspensions WHERE subject = :id")
    row = db.execute(statement, {"id": subject}).one_or_none()
    return None if row is None else SuspensionRow(*row)


def put(db: Connection, subject: str, reason: str) -> None:
    """Suspend a thing, or change the reason. One that is deleted, too, stays so."""
    statement = text("""
        INSERT INTO suspensions (subject, reason) VALUES (:subject, :reason)
        ON CONFLICT (subject) DO UPDATE SET reason = excluded.reason
    """)
    db.execute(statement, {"subject": subject, "reason": reason})


def delete(db: Connection, subject: str) -> bool:
    """Release a thing; return False if it is not suspended. One that is deleted, too, stays so."""
    if deletions.exist(db) and deletions.release(db, subject):
        return True
    statement = text("DELETE FROM suspensions WHERE subject = :subject AND reason <> ''")
    return db.execute(statement, {"subject": subject}).rowcount == 1
