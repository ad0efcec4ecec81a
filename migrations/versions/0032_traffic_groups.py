"""Count the requests and exported bytes of workspaces by person and by experiment, too."""

from alembic import op

revision = "0032_traffic_groups"
down_revision = "0031_run_tags"
branch_labels = None
depends_on = None

STATEMENTS = (
    # Bounded by who adds to it. No foreign keys, as `workspace_traffic` has none: a key is the id
    # of a person or an experiment, or a word, as `quotas/tables/traffic_groups.py` says.
    """
    CREATE TABLE traffic_groups (
        workspace_id bigint NOT NULL,
        month date NOT NULL,  -- its first day, in UTC
        kind text NOT NULL,  -- 'person' or 'experiment'
        key text NOT NULL,
        requests bigint NOT NULL,
        export_bytes bigint NOT NULL,
        PRIMARY KEY (workspace_id, month, kind, key)
    ) WITH (fillfactor = 50)
    """,
    "ALTER TABLE traffic_groups ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE traffic_groups FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON traffic_groups
        USING (workspace_id = (SELECT current_workspace()))""",
)


def upgrade() -> None:
    """Create the table and its policy."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
