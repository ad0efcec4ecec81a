"""The views that readers of share links see, in a database that is distributed, or was."""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import Connection, text

from tbservice.errors import StartupError

_LOOKED_UP: Final = re.compile(r"(?<!EXISTS )\( SELECT true\s+FROM (?=link_views\.)")
"""How the view of a table of points finds the series of a row, as PostgreSQL prints it."""

_EXISTS: Final = re.compile(r"EXISTS \( SELECT true\s+FROM (?=link_views\.)")
"""Equivalent condition, of which PostgreSQL makes a join."""

_GRANT: Final = 'GRANT SELECT ON ALL TABLES IN SCHEMA link_views TO "{}"'


def join_series(db: Connection) -> None:
    """Let the views of points join their series, which plain PostgreSQL looks up row by row.

    Citus sees that a join on the experiment's id needs one node. It does not see that of a look-up
    when the view is read below a LIMIT or a UNION.
    """
    _change(db, _LOOKED_UP, "EXISTS ( SELECT true FROM ")


def look_up_series(db: Connection) -> None:
    """Undo `join_series`: a look-up cannot change the plan of a query."""
    _change(db, _EXISTS, "( SELECT true FROM ")


def _change(db: Connection, pattern: re.Pattern[str], replacement: str) -> None:
    for view, query in _list_views(db):
        changed = pattern.sub(replacement, query)
        if changed != query:
            # Not as `text`: a colon in a view is no parameter.
            db.exec_driver_sql(
                f'CREATE OR REPLACE VIEW link_views."{view}" AS {changed}',
                execution_options={"no_parameters": True},
            )


def _list_views(db: Connection, condition: str = "true") -> list[tuple[str, str]]:
    """Return name and query of the views for which a condition on `pg_class` is true."""
    rows = db.execute(
        text(f"""
            SELECT relname, pg_get_viewdef(oid) FROM pg_class
            WHERE relnamespace = 'link_views'::regnamespace AND relkind = 'v' AND {condition}
            ORDER BY relname
        """)  # noqa: S608 - called with constants
    )
    return [(name, query) for name, query in rows]


def admit(db: Connection, role: str) -> None:
    """Let a role that serves read the views, with its own rights to the tables.

    On this node: see `admit_on_workers`. Without it, they would read with their owner's rights.
    """
    invoked = "NOT coalesce(reloptions @> '{security_invoker=true}', false)"
    for view, _ in _list_views(db, invoked):
        db.execute(text(f'ALTER VIEW link_views."{view}" SET (security_invoker = true)'))
    db.exec_driver_sql(_GRANT.format(role))


def list_unadmitted_workers(db: Connection) -> list[str]:
    """Return the addresses of workers where OWNER_app may not read the views.

    Nothing of those that do not answer. OWNER_app, or its owner, may ask.
    """
    lacking = """
        SELECT count(*) FROM pg_class AS v JOIN pg_roles AS r
            ON r.rolname = pg_get_userbyid(v.relowner) || '_app'
        WHERE v.relnamespace = 'link_views'::regnamespace AND v.relkind = 'v'
            AND NOT has_table_privilege(r.oid, v.oid, 'SELECT')
    """
    rows = db.execute(
        text("""
            SELECT nodename || ':' || nodeport FROM run_command_on_workers(:lacking)
            WHERE success AND result <> '0' ORDER BY 1
        """),
        {"lacking": lacking},
    )
    return list(rows.scalars())


def admit_on_workers(db: Connection, role: str) -> None:
    """Grant the same on each worker, after the transaction of `admit`: by other connections.

    Citus passes on rights to tables alone, also to a worker that is added later.

    Raises StartupError if a worker refuses it or cannot be reached.
    """
    rows = db.execute(
        text("""
            SELECT nodename, nodeport, result FROM run_command_on_workers(:grant) AS w
            WHERE NOT w.success
        """),
        {"grant": _GRANT.format(role)},
    )
    if failed := [f"{host}:{port}: {result}" for host, port, result in rows]:
        raise StartupError(
            f"the role {role!r} cannot be given its rights on a worker: {'; '.join(failed)}"
        )
