"""Count the ids of an experiment's runs, tags and series, for clusters: see docs/decisions/0031."""

from alembic import op

revision = "0009_counters"
down_revision = "0008_uploads"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "SHARE ROW EXCLUSIVE"}

COUNTERS = """
-- One row per experiment of a cluster; none on plain PostgreSQL, where sequences give ids. Nodes of
-- a cluster have a part of each sequence, which would not be the order of creation.
-- Distribution key: experiment_id.
CREATE TABLE experiment_counters (
    experiment_id text COLLATE "C" PRIMARY KEY REFERENCES experiments ON DELETE CASCADE,
    workspace_id bigint NOT NULL,
    last_id bigint NOT NULL DEFAULT 0  -- of a run, a tag or a series
) WITH (fillfactor = 50)
"""


def upgrade() -> None:
    """Create the table and its policy."""
    for statement in (
        COUNTERS,
        "ALTER TABLE experiment_counters ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE experiment_counters FORCE ROW LEVEL SECURITY",
        """CREATE POLICY tenant ON experiment_counters
            USING (workspace_id = (SELECT current_workspace()))""",
    ):
        op.get_bind().exec_driver_sql(statement)
