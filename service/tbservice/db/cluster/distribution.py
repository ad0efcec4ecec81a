"""Distribute the tables over a cluster (Citus), after the migrations, and bring one home again.

Tables below an experiment are distributed by `experiment_id`: its rows are on one node. Tables of
people and tokens are reference tables, which every node has whole. See docs/citus.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, text

from tbservice import limits
from tbservice.db.cluster import citus, policies, reference_tables, views
from tbservice.db.cluster.citus import has_extension
from tbservice.db.cluster.policies import list_tables

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
    "workspace_quotas",
    "account_quotas",
    "quota_plans",
    "suspensions",
    "operators",
    "page_reports",
)
"""Few rows, read with those of any experiment."""

_WORKSPACE_TABLES: Final = (
    "blobs",
    "experiment_words",
    "saved_searches",
    "saved_views",
    "object_sweeps",
    "workspace_traffic",
    "traffic_groups",
    "audit_records",
    "audit_chains",
)
"""Distributed by `workspace_id`; all others by `experiment_id`, the first of which is this one."""

_FIRST: Final = "experiments"

_LOST: Final = (
    """
        CREATE POLICY known_by_session ON members FOR SELECT
            USING (user_id = (SELECT s.user_id FROM browser_sessions AS s
                              WHERE s.digest = (SELECT current_secret_digest())))
    """,
    """
        ALTER TABLE tokens ADD CONSTRAINT tokens_experiment_id_fkey
            FOREIGN KEY (experiment_id) REFERENCES experiments ON DELETE CASCADE
    """,
    """
        ALTER TABLE experiments ADD CONSTRAINT experiments_snapshot_of_fkey
            FOREIGN KEY (snapshot_of) REFERENCES experiments ON DELETE CASCADE
    """,
)
"""Constraints of the migrations that a cluster does without."""

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

    Idempotent, in a transaction of the role that owns the tables, after the migrations. Tables
    may have rows. On plain PostgreSQL, sequences go on after what a cluster has numbered.

    Raises:
        StartupError: A table or a policy cannot be distributed: a migration must be mended. Or a
            worker cannot be reached.
    """
    with engine.begin() as db:
        if not has_extension(db):
            _bring_home(db)
            _admit(db)
            return []
        policies.create_function(db)
        reference_tables.create_function(db)
    with engine.begin() as db:
        tables = _arrange_cluster(db)
        role = _admit(db)
        if role is not None:
            policies.free_owner(db)
    if role is not None:
        with engine.begin() as db:
            views.admit_on_workers(db, role)
    return tables


def _admit(db: Connection) -> str | None:
    """Give the role OWNER_app, which serves, its rights if it exists; return its name."""
    role = policies.find_application(db)
    if role is not None:
        policies.admit(db, role)
        views.admit(db, role)
    return role


def _arrange_cluster(db: Connection) -> list[str]:
    set_timeouts(db, lock_seconds=limits.MIGRATE_LOCK_SECONDS_MAX)
    db.execute(text("SET LOCAL citus.multi_shard_modify_mode = 'sequential'"))
    policies.adapt(db)
    tables = _list_local_tables(db)
    if tables:
        _distribute(db, tables)
    views.join_series(db)
    return tables


def set_timeouts(
    db: Connection, *, lock_seconds: float, statement_seconds: float | None = None
) -> None:
    """Set timeouts until the transaction ends, also on the workers of a cluster."""
    if has_extension(db):
        db.exec_driver_sql(citus.PROPAGATE_SETTINGS)
    db.exec_driver_sql(f"SET LOCAL lock_timeout = {round(lock_seconds * 1000)}")
    if statement_seconds is not None:
        db.exec_driver_sql(f"SET LOCAL statement_timeout = {round(statement_seconds * 1000)}")


def list_lacking(db: Connection) -> tuple[list[str], list[str]]:
    """Return what `arrange` would do in a cluster: for these tables, and on these workers.

    The workers are those where the role that serves lacks rights, as after citus_add_node.
    """
    if not has_extension(db):
        return [], []
    tables = _list_local_tables(db)
    return tables, [] if tables else views.list_unadmitted_workers(db)


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
    names = (*_REFERENCE_TABLES, _FIRST, _WORKSPACE_TABLES[0])
    order = {name: place for place, name in enumerate(names)}
    return sorted(rows.scalars(), key=lambda name: (order.get(name, len(order)), name))


def _distribute(db: Connection, tables: list[str]) -> None:
    forced = list_tables(db, "relforcerowsecurity")
    for table in forced:  # the policies apply to the owner of the tables too, who copies the rows
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))
    if "experiment_counters" in tables:
        _begin_counters(db)
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

    Keys of tokens on experiments, and of copies on their sources, are left to our own deletions.
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


def _bring_home(db: Connection) -> None:
    """Undo on plain PostgreSQL what a cluster needed, in a database that was moved out of one.

    Sequences go on after the greatest number that rows have.
    """
    if policies.has_policy(db, *policies.SESSION_POLICY):
        return
    tables = list_tables(db, "relrowsecurity")
    for table in tables:
        db.execute(text(f'ALTER TABLE "{table}" NO FORCE ROW LEVEL SECURITY'))
    for sequence, greatest in _NUMBERED.items():
        db.execute(
            text(f"""
                SELECT setval('{sequence}', greatest(
                    (SELECT last_value FROM {sequence}), ({greatest})))
            """)  # noqa: S608 - constants above
        )
    db.execute(text("TRUNCATE experiment_counters"))

    policies.restore(db)
    reference_tables.drop_function(db)
    views.look_up_series(db)
    for statement in _LOST:
        db.execute(text(statement))
    for table in tables:
        db.execute(text(f'ALTER TABLE "{table}" FORCE ROW LEVEL SECURITY'))
