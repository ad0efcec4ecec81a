"""Large blobs that arrive in pieces: how far each has come, and objects that bear more than their blob's digest."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# An object is put together under a name of its own, so that it never takes the place of one that was verified.
TABLES = """
CREATE TABLE blob_uploads (
    workspace_id bigint NOT NULL REFERENCES workspaces,
    sha256 bytea NOT NULL,
    size bigint NOT NULL,
    object_suffix text NOT NULL,
    upload_id text NOT NULL,
    touched_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (workspace_id, sha256, size)
);

ALTER TABLE blobs ADD COLUMN object_suffix text NOT NULL DEFAULT '';
"""

# Whoever begins an upload also clears away those that everybody has left, of any tenant; only the sweep's own
# transaction names the time before which they count as left.
POLICIES = """
ALTER TABLE blob_uploads ENABLE ROW LEVEL SECURITY;
ALTER TABLE blob_uploads FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON blob_uploads USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY left_seen ON blob_uploads FOR SELECT
    USING (touched_at < nullif((SELECT current_setting('tbhub.left_before', true)), '')::timestamptz);
CREATE POLICY left_deleted ON blob_uploads FOR DELETE
    USING (touched_at < nullif((SELECT current_setting('tbhub.left_before', true)), '')::timestamptz);
"""


def upgrade() -> None:
    """Creates the table of unfinished blobs and its policies; the blobs that are there keep their objects' names."""
    for statements in (TABLES, POLICIES):
        op.get_bind().exec_driver_sql(statements)
