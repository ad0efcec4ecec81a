"""Policies and roles of a database that is distributed, or was: see `distribution`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, event, text

from tbservice.db.cluster import citus
from tbservice.errors import StartupError

_SUBQUERY: Final = re.compile(
    r"\( SELECT (current_setting\('[^']*'::text, true\)|\w+\(\)) AS \w+\)"
)
"""Subquery of policies around a setting, so that it is evaluated once: Citus allows none."""

_SUBQUERY_OF_MIGRATION: Final = re.compile(
    r"\(\s*SELECT (current_setting\('[^']*', true\)|\w+\(\))\s*\)"
)
"""That subquery in the spelling of migrations."""

_CALL: Final = re.compile(r"current_setting\('[^']*'::text, true\)|\b(current_\w+|shows_\w+)\(\)")
"""A call of the same without the subquery."""

_OF_WORKSPACE: Final = "workspace_id = current_workspace()"
"""The condition of most policies."""

_IN_WORKSPACE: Final = "in_current_workspace(workspace_id)"
"""Condition on the workspace in a cluster.

Citus evaluates a statement's functions before it sends it on, unless they are immutable, and then
writes all parameters into its text: 24 ns for each byte of a packed block, which takes 5 to store.
"""

_FUNCTION: Final = """
    CREATE FUNCTION in_current_workspace(workspace_id bigint) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
    BEGIN
        RETURN workspace_id = nullif(current_setting('tbhub.workspace_id', true), '')::bigint;
    END $$
"""
"""It reads a setting, so that IMMUTABLE is not the truth, but harmless while its argument is a
column: PostgreSQL computes ahead only what depends on constants alone, and no index is made of it.
"""

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


def has_policy(db: Connection, table: str, name: str) -> bool:
    """Return whether a table has a policy of this name."""
    statement = text("""
        SELECT EXISTS (SELECT FROM pg_policies
            WHERE schemaname = 'public' AND tablename = :table AND policyname = :name)
    """)
    return bool(db.execute(statement, {"table": table, "name": name}).scalar())


def create_function(db: Connection) -> None:
    """Create the function that policies of a cluster call, unless it is there."""
    if not db.execute(text("SELECT to_regproc('in_current_workspace')")).scalar():
        db.exec_driver_sql(_FUNCTION)


def adapt(db: Connection) -> None:
    """Give all policies the form of a cluster: no sub-query, which Citus rejects; see above.

    Idempotent. `create_function` must have been committed before, so that Citus passes it on.
    Raises StartupError if one has another sub-query than that around a setting.
    """
    if has_policy(db, *SESSION_POLICY):
        table, name = SESSION_POLICY
        db.execute(text(f'DROP POLICY "{name}" ON "{table}"'))
    _change_policies(
        db, lambda condition: _SUBQUERY.sub(r"\1", condition).replace(_OF_WORKSPACE, _IN_WORKSPACE)
    )
    rows = db.execute(
        text("""
            SELECT tablename, policyname FROM pg_policies
            WHERE schemaname = 'public' AND (qual ~ 'SELECT' OR with_check ~ 'SELECT')
        """)
    )
    if rejected := [f"{name} of {table}" for table, name in rows]:
        raise StartupError(f"Citus rejects the sub-queries of policies: {', '.join(rejected)}")


@contextmanager
def adapting(db: Connection) -> Iterator[None]:
    """Create policies in the block without sub-queries, if it is a cluster.

    Citus rejects them for tables that are distributed already. `adapt` does the rest afterwards.
    """

    def change(_db: Any, _cursor: Any, statement: str, parameters: Any, *_more: Any) -> Any:
        if "CREATE POLICY" in statement:
            statement = _SUBQUERY_OF_MIGRATION.sub(r"\1", statement)
        return statement, parameters

    if not citus.has_extension(db):
        yield
        return
    event.listen(db, "before_cursor_execute", change, retval=True)
    try:
        yield
    finally:
        event.remove(db, "before_cursor_execute", change)


def restore(db: Connection) -> None:
    """Give all policies the form of plain PostgreSQL, whose sub-queries are evaluated once."""
    _change_policies(
        db,
        lambda condition: _CALL.sub(
            r"(SELECT \g<0>)", condition.replace(_IN_WORKSPACE, _OF_WORKSPACE)
        ),
    )
    db.execute(text("DROP FUNCTION IF EXISTS in_current_workspace"))


def _change_policies(db: Connection, change: Callable[[str], str]) -> None:
    """Replace the conditions of all policies by what `change` makes of them, if it differs."""
    rows = db.execute(
        text("""
            SELECT tablename, policyname, qual, with_check FROM pg_policies
            WHERE schemaname = 'public'
        """)
    ).all()
    for table, name, *conditions in rows:
        changed = [condition and change(condition) for condition in conditions]
        if changed == conditions:
            continue
        clauses = [
            f"{clause} ({condition})"
            for clause, condition in zip(("USING", "WITH CHECK"), changed, strict=True)
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


def free_owner(db: Connection) -> None:
    """Let the owner of the tables see all rows, since it moves shards."""
    for table in list_tables(db, "relforcerowsecurity"):
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))


def admit(db: Connection, role: str) -> None:
    """Let a role that serves use the tables."""
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
        # An intruder in the service cannot take back what is recorded.
        'REVOKE UPDATE, DELETE ON audit_records FROM "{}"',
    ):
        db.exec_driver_sql(statement.format(role))
