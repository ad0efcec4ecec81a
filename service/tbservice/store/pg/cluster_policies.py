"""Policies and roles of a database that is distributed, or was: see `distribution`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, text

from tbservice.errors import StartupError

_SUBQUERY: Final = re.compile(
    r"\( SELECT (current_setting\('[^']*'::text, true\)|\w+\(\)) AS \w+\)"
)
"""What policies have around a setting, so that it is evaluated once: Citus allows no subquery."""

_CALL: Final = re.compile(r"current_setting\('[^']*'::text, true\)|\b(current_\w+|shows_\w+)\(\)")
"""The same without it."""

SESSION_POLICY: Final = ("members", "known_by_session")
"""The policy that looks into another table; `auth_lookup` asks in two statements instead."""


def list_tables(db: Connection, condition: str) -> list[str]:
    """Return the tables for which a condition on `pg_class` is true, by name."""
    rows = db.execute(
        text(f"""
            SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
                AND relkind = 'r' AND {condition} ORDER BY relname
        """)  # noqa: S608 - called with constants
    )
    return list(rows.scalars())


def simplify_policies(db: Connection, tables: list[str]) -> None:
    """Take the sub-queries out of the policies of these tables; Citus rejects them.

    Raises StartupError if one has another sub-query than that around a setting.
    """
    table, name = SESSION_POLICY
    db.execute(text(f'DROP POLICY IF EXISTS "{name}" ON "{table}"'))
    _change_policies(db, tables, lambda condition: _SUBQUERY.sub(r"\1", condition))
    rows = db.execute(
        text("""
            SELECT tablename, policyname FROM pg_policies
            WHERE schemaname = 'public' AND tablename = ANY (:tables)
                AND (qual ~ 'SELECT' OR with_check ~ 'SELECT')
        """),
        {"tables": tables},
    )
    if rejected := [f"{name} of {table}" for table, name in rows]:
        raise StartupError(f"Citus rejects the sub-queries of policies: {', '.join(rejected)}")


def restore_subqueries(db: Connection, tables: list[str]) -> None:
    """Give the policies of these tables their sub-queries back, which evaluate a setting once."""
    _change_policies(db, tables, lambda condition: _CALL.sub(r"(SELECT \g<0>)", condition))


def _change_policies(db: Connection, tables: list[str], change: Callable[[str], str]) -> None:
    """Replace the conditions of all policies of these tables by what `change` makes of them."""
    rows = db.execute(
        text("""
            SELECT tablename, policyname, qual, with_check FROM pg_policies
            WHERE schemaname = 'public' AND tablename = ANY (:tables)
        """),
        {"tables": tables},
    ).all()
    for table, name, *conditions in rows:
        clauses = [
            f"{clause} ({change(condition)})"
            for clause, condition in zip(("USING", "WITH CHECK"), conditions, strict=True)
            if condition is not None
        ]
        # Not as `text`: a colon in a policy is no parameter.
        db.exec_driver_sql(
            f'ALTER POLICY "{name}" ON "{table}" {" ".join(clauses)}',
            execution_options={"no_parameters": True},
        )


def find_application(db: Connection) -> str | None:
    """Return the role OWNER_app, which serves while the owner of the tables migrates, if it exists.

    Shards are moved by the owner of the tables, who must see all rows; the service must not be
    that owner then.
    """
    role: str | None = db.execute(
        text("""
            SELECT rolname FROM pg_roles
            WHERE rolname = current_user || '_app' AND NOT rolsuper AND NOT rolbypassrls
        """)
    ).scalar()
    return role


def admit(db: Connection, role: str) -> None:
    """Let a role that serves use the tables, and free their owner of the policies."""
    for table in list_tables(db, "relforcerowsecurity"):
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))
    lacking = text("""
        SELECT EXISTS (SELECT FROM pg_class
            WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
                AND NOT has_table_privilege(:role, oid, 'SELECT'))
    """)
    if not db.execute(lacking, {"role": role}).scalar():
        return
    for statement in (
        'GRANT USAGE ON SCHEMA public, link_views TO "{}"',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{}"',
        'GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO "{}"',
    ):
        db.exec_driver_sql(statement.format(role))
