"""The sub-query by which statements of other modules find whether something is suspended.

It is a part of the statement that looks up a token, a session or an experiment, so that it costs
no statement of its own, and holds from the next look-up on.
"""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.db.schema_parts import has_column, has_table


def select_suspension(db: Connection, *subjects: str) -> str:
    """Return the SQL of the broadest suspension of some things, as `Suspension.parse` reads it.

    A scalar, NULL if none is suspended. `subjects` are SQL expressions of texts such as
    'workspace/7', of which NULL is none.
    """
    # By name, the broadest comes last: experiment, link, person, workspace.
    return _select(db, "(SELECT max({}) {})", "text", subjects)


def select_suspensions(db: Connection, *subjects: str) -> str:
    """Return the SQL of the array of all suspensions of some things; it may be NULL for none.

    For look-ups of every request, which need those of two things: an array takes half the time of
    two scalars, and most of what is left is saved while nothing at all is suspended.
    """
    return _select(db, "ARRAY(SELECT {} {})", "text[]", subjects)


def exist(db: Connection) -> str:
    """Return the SQL of whether anything at all is suspended."""
    return "EXISTS (SELECT FROM suspensions)" if has_table(db, "suspensions") else "false"


def _select(db: Connection, query: str, sql_type: str, subjects: tuple[str, ...]) -> str:
    if not has_table(db, "suspensions"):
        return f"NULL::{sql_type}"
    reason = "x.reason"
    if has_column(db, "suspensions", "deleted_at"):
        # A deleted object looks as if it were not there, also if it is suspended, too.
        reason = "CASE WHEN x.deleted_at IS NULL THEN x.reason ELSE '' END"
    rows = f"FROM suspensions AS x WHERE x.subject = ANY (ARRAY[{', '.join(subjects)}])"
    found = query.format(f"x.subject || chr(10) || {reason}", rows)
    return f"CASE WHEN {exist(db)} THEN {found} END"
