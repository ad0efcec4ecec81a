"""Let servers delete objects while they run: marks of blobs, and how far the sweeps are."""

from alembic import op

revision = "0015_object_sweeps"
down_revision = "0014_summaries"
branch_labels = None
depends_on = None

LOCKS = {"blobs": "ACCESS EXCLUSIVE"}

# Number of the sweep that is about to delete the blob, and will unless a transaction that refers to
# it takes the mark away. A number, not a time: two sweeps never have the same one.
MARK = "ALTER TABLE blobs ADD COLUMN condemned_by bigint"

# Without a foreign key, which would lock `workspaces`.
PROGRESS = """
-- One row per workspace whose objects were swept: where the sweep is, and when the last one ended.
-- Distribution key: workspace_id.
CREATE TABLE object_sweeps (
    workspace_id bigint PRIMARY KEY,
    after_sha256 bytea NOT NULL DEFAULT '',  -- the last blob that was looked at; '' between sweeps
    finished_at timestamptz,  -- end of the last sweep; NULL: none has ended yet
    deleted_objects bigint NOT NULL DEFAULT 0,  -- by all sweeps
    deleted_bytes bigint NOT NULL DEFAULT 0
);
ALTER TABLE object_sweeps ENABLE ROW LEVEL SECURITY;
ALTER TABLE object_sweeps FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON object_sweeps USING (workspace_id = (SELECT current_workspace()));
"""


def upgrade() -> None:
    """Add the column, and the table with its policy."""
    for statements in (MARK, PROGRESS):
        op.get_bind().exec_driver_sql(statements)
