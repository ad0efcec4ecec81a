"""Count requests and exported bytes of workspaces by month, and limit them."""

from alembic import op

revision = "0029_traffic"
down_revision = "0028_account_quotas"
branch_labels = None
depends_on = None

# Tables of a few rows, locked in the order in which servers read them.
LOCKS = {
    "workspace_quotas": "ACCESS EXCLUSIVE",
    "quota_plans": "ACCESS EXCLUSIVE",
    "account_quotas": "ACCESS EXCLUSIVE",
}

STATEMENTS = (
    # One row per workspace and month, to which each worker adds every few seconds what it has
    # counted. No foreign key, which would lock `workspaces`.
    """
    CREATE TABLE workspace_traffic (
        workspace_id bigint NOT NULL,
        month date NOT NULL,  -- its first day, in UTC
        requests bigint NOT NULL,
        export_bytes bigint NOT NULL,
        last_at timestamptz NOT NULL,  -- when something was added last
        PRIMARY KEY (workspace_id, month)
    ) WITH (fillfactor = 50)
    """,
    "ALTER TABLE workspace_traffic ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE workspace_traffic FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON workspace_traffic
        USING (workspace_id = (SELECT current_workspace()))""",
    # As of `usage_counters`: the order of all workspaces by their last use is one statement.
    """CREATE POLICY seen_by_operators ON workspace_traffic FOR SELECT
        USING ((SELECT current_setting('tbhub.operator', true)) = 'on')""",
    # NULL: the limit of the plan; of a plan: no limit.
    *(
        f"ALTER TABLE {table} ADD COLUMN requests bigint, ADD COLUMN export_bytes bigint"
        for table in LOCKS
    ),
)


def upgrade() -> None:
    """Create the table and its policies, and add the columns."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
