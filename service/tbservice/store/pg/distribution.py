"""Distribute the tables over a cluster (Citus), after the migrations, and bring one home again.

Tables below an experiment are distributed by `experiment_id`: its rows are on one node. Those of
people and tokens are reference tables, which every node has whole. See docs/citus.md.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, text

from tbservice import limits
from tbservice.errors import StartupError

_REFERENCE_TABLES: Final = (
    "alembic_version",
    "sample_slots",
    "workspaces",
    "users",
    "user_identities",
    "members",
    "invitations",
    "sign_in_links",
    "sign_in_attempts",
    "browser_sessions",
    "device_logins",
    "tokens",
)
"""Few rows, read with those of any experiment."""

_WORKSPACE_TABLES: Final = ("blobs", "experiment_words")
"""Distributed by `workspace_id`; all others by `experiment_id`, the first of which is this one."""

_FIRST: Final = "experiments"

_SUBQUERY: Final = re.compile(
    r"\( SELECT (current_setting\('[^']*'::text, true\)|\w+\(\)) AS \w+\)"
)
"""What policies have around a setting, so that it is evaluated once: Citus allows no subquery."""

_DROPPED_POLICIES: Final = (("members", "known_by_session"),)
"""Policies that look into another table; `auth_lookup` asks in two statements instead."""

_NUMBERED: Final = {
    "runs_run_id_seq": "SELECT max(last_id) FROM experiment_counters",
    "tags_tag_id_seq": "SELECT max(last_id) FROM experiment_counters",
    "time_series_series_id_seq": "SELECT max(last_id) FROM experiment_counters",
    "scalar_tail_block_id_seq": "SELECT max(block_id) FROM scalar_tail",
    "scalar_blocks_block_id_seq": "SELECT max(block_id) FROM scalar_blocks",
    "superseded_blocks_block_id_seq": "SELECT max(block_id) FROM superseded_blocks",
    "experiments_number_seq": "SELECT max(number) FROM experiments",
    "workspaces_workspace_id_seq": "SELECT max(workspace_id) FROM workspaces",
}
"""The greatest number of each sequence that rows may have which a cluster has written."""


class _ForeignKey(NamedTuple):
    table: str
    name: str
    definition: str
    referenced: str


def arrange(engine: Engine) -> list[str]:
    """Distribute the tables that are not, and return their names; [] on plain PostgreSQL.

    Idempotent, in one transaction of the role that owns the tables, after the migrations. Tables
    may have rows. On plain PostgreSQL, sequences go on after what a cluster has numbered.

    Raises:
        StartupError: A table or a policy cannot be distributed: a migration must be mended.
    """
    with engine.begin() as db:
        if not _has_extension(db):
            _continue_sequences(db)
            return []
        tables = _list_local_tables(db)
        if tables:
            db.execute(
                text("SELECT set_config('lock_timeout', :milliseconds, true)"),
                {"milliseconds": str(round(limits.MIGRATE_LOCK_SECONDS_MAX * 1000))},
            )
            _distribute(db, tables)
        _admit_application(db)
        return tables


def _has_extension(db: Connection) -> bool:
    return bool(
        db.execute(
            text("SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')")
        ).scalar()
    )


def _list_local_tables(db: Connection) -> list[str]:
    """Return the tables that are not distributed: references first, and what others follow."""
    rows = db.execute(
        text("""
            SELECT c.relname FROM pg_class AS c
            WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
                AND NOT EXISTS (
                    SELECT FROM pg_dist_partition AS p
                    WHERE p.logicalrelid = c.oid AND (p.partmethod <> 'n' OR p.repmodel = 't'))
        """)
    )
    order = {name: place for place, name in enumerate((*_REFERENCE_TABLES, _FIRST))}
    return sorted(rows.scalars(), key=lambda name: (order.get(name, len(order)), name))


def _distribute(db: Connection, tables: list[str]) -> None:
    db.execute(text("SET LOCAL citus.multi_shard_modify_mode = 'sequential'"))
    forced = _list_forced(db)
    for table in forced:  # the policies apply to the owner of the tables too, who copies the rows
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))
    if "experiment_counters" in tables:
        _begin_counters(db)
    _rewrite_policies(db, tables)

    keys = _list_foreign_keys(db, tables)
    for key in keys:
        db.execute(text(f'ALTER TABLE "{key.table}" DROP CONSTRAINT "{key.name}"'))
    for table in tables:
        _distribute_one(db, table)
    for key in keys:
        if _is_possible(key):
            statement = f'ALTER TABLE "{key.table}" ADD CONSTRAINT "{key.name}" {key.definition}'
            db.execute(text(statement))

    for table in forced:
        db.execute(text(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY'))


def _distribute_one(db: Connection, table: str) -> None:
    if table in _REFERENCE_TABLES:
        db.execute(text("SELECT create_reference_table(:table)"), {"table": table})
    else:
        is_first = table in (_FIRST, _WORKSPACE_TABLES[0])
        is_by_workspace = table in _WORKSPACE_TABLES
        followed = _WORKSPACE_TABLES[0] if is_by_workspace else _FIRST
        values = {
            "table": table,
            "column": "workspace_id" if is_by_workspace else "experiment_id",
            "with": "none" if is_first else followed,
        }
        statement = "SELECT create_distributed_table(:table, :column, colocate_with => :with)"
        db.execute(text(statement), values)
    db.execute(
        text("SELECT truncate_local_data_after_distributing_table(CAST(:table AS regclass))"),
        {"table": table},
    )


def _list_forced(db: Connection) -> list[str]:
    rows = db.execute(
        text("""
            SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
                AND relkind = 'r' AND relforcerowsecurity ORDER BY relname
        """)
    )
    return list(rows.scalars())


def _rewrite_policies(db: Connection, tables: list[str]) -> None:
    for table, name in _DROPPED_POLICIES:
        db.execute(text(f'DROP POLICY IF EXISTS "{name}" ON "{table}"'))
    rows = db.execute(
        text("""
            SELECT tablename, policyname, qual, with_check FROM pg_policies
            WHERE schemaname = 'public' AND tablename = ANY (:tables)
        """),
        {"tables": tables},
    ).all()
    for table, name, used, checked in rows:
        clauses = {"USING": used, "WITH CHECK": checked}
        rewritten = {
            clause: _SUBQUERY.sub(r"\1", condition)
            for clause, condition in clauses.items()
            if condition is not None
        }
        if any("SELECT" in condition for condition in rewritten.values()):
            raise StartupError(f"the policy {name} of {table} has a subquery that Citus rejects")
        if any(clauses[clause] != condition for clause, condition in rewritten.items()):
            words = " ".join(f"{clause} ({condition})" for clause, condition in rewritten.items())
            # exec_driver_sql: a colon in a policy is no parameter
            db.exec_driver_sql(
                f'ALTER POLICY "{name}" ON "{table}" {words}',
                execution_options={"no_parameters": True},
            )


def _list_foreign_keys(db: Connection, tables: list[str]) -> list[_ForeignKey]:
    rows = db.execute(
        text("""
            SELECT t.relname, k.conname, pg_get_constraintdef(k.oid), r.relname
            FROM pg_constraint AS k
            JOIN pg_class AS t ON t.oid = k.conrelid
            JOIN pg_class AS r ON r.oid = k.confrelid
            WHERE k.contype = 'f' AND k.conparentid = 0
                AND t.relnamespace = 'public'::regnamespace
                AND (t.relname = ANY (:tables) OR r.relname = ANY (:tables))
            ORDER BY t.relname, k.conname
        """),
        {"tables": tables},
    )
    return [_ForeignKey(*row) for row in rows]


def _is_possible(key: _ForeignKey) -> bool:
    """Return whether Citus can check the key: on one node, or in a table that every node has.

    Those of tokens on experiments, and of copies on their sources, are left to our own deletions.
    """
    if key.referenced in _REFERENCE_TABLES:
        return True
    return key.table not in _REFERENCE_TABLES and "KEY (experiment_id)" in key.definition


def _begin_counters(db: Connection) -> None:
    """Let the experiments that exist count on after what sequences have given."""
    db.execute(
        text("""
            INSERT INTO experiment_counters (experiment_id, workspace_id, last_id)
            SELECT experiment_id, workspace_id, (
                SELECT coalesce(max(last_value), 0) FROM pg_sequences
                WHERE schemaname = 'public' AND sequencename IN
                    ('runs_run_id_seq', 'tags_tag_id_seq', 'time_series_series_id_seq'))
            FROM experiments ON CONFLICT DO NOTHING
        """)
    )


def _admit_application(db: Connection) -> None:
    """Let the role OWNER_app use the tables, if it exists, and free the owner of the policies.

    Shards are moved by the owner of the tables, who must see all rows; the service must not be
    that owner then.
    """
    role = db.execute(
        text("""
            SELECT rolname FROM pg_roles
            WHERE rolname = current_user || '_app' AND NOT rolsuper AND NOT rolbypassrls
        """)
    ).scalar()
    if role is None:
        return
    views = text("SELECT viewname FROM pg_views WHERE schemaname = 'link_views'")
    for view in list(
        db.execute(views).scalars()
    ):  # by default they read with the rights of their owner
        db.execute(text(f'ALTER VIEW link_views."{view}" SET (security_invoker = true)'))
    for statement in (
        'GRANT USAGE ON SCHEMA public, link_views TO "{}"',
        'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "{}"',
        'GRANT SELECT ON ALL TABLES IN SCHEMA link_views TO "{}"',
        'GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO "{}"',
    ):
        db.exec_driver_sql(statement.format(role))
    for table in _list_forced(db):
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))


def _continue_sequences(db: Connection) -> None:
    """Set the sequences after the greatest number that a cluster has given; empty its counters."""
    if not db.execute(text("SELECT pg_relation_size('experiment_counters')")).scalar():
        return
    for table in _list_forced(db):
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))
    for sequence, greatest in _NUMBERED.items():
        db.execute(
            text(f"""
                SELECT setval('{sequence}', greatest(
                    (SELECT last_value FROM {sequence}), ({greatest})))
            """)  # noqa: S608 - constants above
        )
    db.execute(text("TRUNCATE experiment_counters"))
    rows = db.execute(
        text("""
            SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
                AND relkind = 'r' AND relrowsecurity ORDER BY relname
        """)
    )
    for table in list(rows.scalars()):
        db.execute(text(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY'))
