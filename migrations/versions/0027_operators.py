"""Record who has the operator's rights, and let them see the sizes of all workspaces."""

from alembic import op

revision = "0027_operators"
down_revision = "0026_last_workspace"
branch_labels = None
depends_on = None

LOCKS = {"usage_counters": "ACCESS EXCLUSIVE"}

STATEMENTS = (
    # One row per person who ever had the right. Of no tenant, as `suspensions`; no foreign key,
    # which would lock `users`. The look-up of a browser session reads it: no row-level security.
    """
    CREATE TABLE operators (
        user_id text COLLATE "C" PRIMARY KEY,
        made_at timestamptz NOT NULL DEFAULT now(),
        revoked_at timestamptz  -- NULL: an operator now
    )
    """,
    # The order of all workspaces by what they store is one statement, which sets this.
    """CREATE POLICY seen_by_operators ON usage_counters FOR SELECT
        USING ((SELECT current_setting('tbhub.operator', true)) = 'on')""",
)


def upgrade() -> None:
    """Create the table, and the policy."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
