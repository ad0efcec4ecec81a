"""Remember which runs were deleted, and erase the points of deleted series in the background.

An uploader that still has a deleted run is told so. Only the SHA-256 of its name is kept.
"""

from alembic import op

revision = "0007_deleted_runs"
down_revision = "0006_attempts"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "SHARE ROW EXCLUSIVE"}

DELETED_RUNS = """
-- One row per run that was deleted from an experiment that exists. A name is never in `runs` and
-- here: what creates a run looks here afterwards. Distribution key: experiment_id.
CREATE TABLE deleted_runs (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    name_digest bytea NOT NULL,  -- SHA-256 of the name, which is not kept
    workspace_id bigint NOT NULL,
    deleted_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (experiment_id, name_digest)
);
ALTER TABLE deleted_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE deleted_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON deleted_runs USING (workspace_id = (SELECT current_workspace()));

-- One row per series that was deleted, and whose points are still to be erased, in the background:
-- of a large run that takes longer than a request may. Distribution key: experiment_id.
CREATE TABLE erased_series (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    series_id bigint NOT NULL,
    workspace_id bigint NOT NULL,
    PRIMARY KEY (experiment_id, series_id)
);
ALTER TABLE erased_series ENABLE ROW LEVEL SECURITY;
ALTER TABLE erased_series FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON erased_series USING (workspace_id = (SELECT current_workspace()));
-- The background work that erases looks for them in all workspaces.
CREATE POLICY due_seen ON erased_series FOR SELECT
    USING (nullif((SELECT current_setting('tbhub.erase_before', true)), '') IS NOT NULL);
"""


def upgrade() -> None:
    """Create the tables."""
    op.get_bind().exec_driver_sql(DELETED_RUNS)
