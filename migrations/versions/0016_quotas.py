"""Count what each experiment stores, and limit what a workspace may store."""

from alembic import op

revision = "0016_quotas"
down_revision = "0015_object_sweeps"
branch_labels = None
depends_on = None

LOCKS = {"workspaces": "SHARE ROW EXCLUSIVE"}

STATEMENTS = (
    # One row per experiment; one per workspace ('workspace/<id>') for the blobs of experiments that
    # were erased; and one for each frozen copy that is being made ('copy/<digits>'), which reserves
    # room before it exists: so no foreign key. Each batch updates that of its experiment. The
    # columns *_max say up to which number it may grow without a look at the workspace's quota.
    # Distribution key: experiment_id.
    """
    CREATE TABLE usage_counters (
        experiment_id text COLLATE "C" PRIMARY KEY,
        workspace_id bigint NOT NULL,
        scalars bigint NOT NULL DEFAULT 0,
        tensors bigint NOT NULL DEFAULT 0,
        blob_sequences bigint NOT NULL DEFAULT 0,
        tensor_bytes bigint NOT NULL DEFAULT 0,
        blob_bytes bigint NOT NULL DEFAULT 0,
        points_max bigint NOT NULL DEFAULT 0,
        tensor_bytes_max bigint NOT NULL DEFAULT 0,
        blob_bytes_max bigint NOT NULL DEFAULT 0,
        reserved_until timestamptz
    ) WITH (fillfactor = 50)
    """,
    "CREATE INDEX usage_counters_by_workspace ON usage_counters (workspace_id)",
    "ALTER TABLE usage_counters ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE usage_counters FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON usage_counters
        USING (workspace_id = (SELECT current_workspace()))""",
    # NULL: the limit of the plan.
    """
    CREATE TABLE workspace_quotas (
        workspace_id bigint PRIMARY KEY REFERENCES workspaces ON DELETE CASCADE,
        plan text,
        points bigint,
        tensor_bytes bigint,
        blob_bytes bigint,
        experiments bigint,
        members bigint
    )
    """,
    "ALTER TABLE workspace_quotas ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE workspace_quotas FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON workspace_quotas
        USING (workspace_id = (SELECT current_workspace()))""",
    # Of no tenant. NULL: no limit.
    """
    CREATE TABLE quota_plans (
        name text PRIMARY KEY,
        points bigint,
        tensor_bytes bigint,
        blob_bytes bigint,
        experiments bigint,
        members bigint
    )
    """,
)


def upgrade() -> None:
    """Create the tables and their policies."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
