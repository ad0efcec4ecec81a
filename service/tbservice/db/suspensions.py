"""The sub-query by which statements of other modules find whether something is suspended.

It is a part of the statement that looks up a token, a session or an experiment, so that it costs
no statement of its own, and holds from the next look-up on.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.db.pipeline import fetch_binary

_HAS_TABLE: Final = "tbhub_has_suspensions"
"""The key of a connection's flag, in the dictionary that SQLAlchemy keeps for it."""


def has_table(db: Connection) -> bool:
    """Return whether the schema has suspensions; a migration may add them meanwhile."""
    if not db.info.get(_HAS_TABLE):
        # Not by SQLAlchemy, which would begin a transaction.
        rows = fetch_binary(db, "SELECT to_regclass('public.suspensions') IS NOT NULL", {})
        db.info[_HAS_TABLE] = bool(rows[0][0])
    return bool(db.info[_HAS_TABLE])


def select_suspension(db: Connection, *subjects: str) -> str:
    """Return the SQL of the broadest suspension of some things, as `Suspension.parse` reads it.

    A scalar, NULL if none is suspended. `subjects` are SQL expressions of texts such as
    'workspace/7', of which NULL is none.
    """
    # By name, the broadest comes last: experiment, link, person, workspace.
    return _select(db, "(SELECT max(x.subject || chr(10) || x.reason) {})", "text", subjects)


def select_suspensions(db: Connection, *subjects: str) -> str:
    """Return the SQL of the array of all suspensions of some things; it may be NULL for none.

    For look-ups of every request, which need those of two things: an array takes half the time of
    two scalars, and most of what is left is saved while nothing at all is suspended.
    """
    return _select(db, "ARRAY(SELECT x.subject || chr(10) || x.reason {})", "text[]", subjects)


def _select(db: Connection, query: str, sql_type: str, subjects: tuple[str, ...]) -> str:
    if not has_table(db):
        return f"NULL::{sql_type}"
    rows = f"FROM suspensions AS x WHERE x.subject = ANY (ARRAY[{', '.join(subjects)}])"
    return f"CASE WHEN EXISTS (SELECT FROM suspensions) THEN {query.format(rows)} END"
