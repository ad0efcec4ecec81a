"""Record each upload of an experiment: from which machine, when, and how the training ended."""

from alembic import op

revision = "0008_uploads"
down_revision = "0007_deleted_runs"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "SHARE ROW EXCLUSIVE"}

UPLOADS = """
-- One row per process that uploads to an experiment, unless it was told to record nothing.
-- Distribution key: experiment_id.
CREATE TABLE uploads (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    upload_id text COLLATE "C" NOT NULL,  -- chosen by the uploader, at random
    workspace_id bigint NOT NULL,
    origin jsonb NOT NULL,  -- texts by name: host, user, command, git commit, Python, GPUs
    packages text[] NOT NULL,  -- of the training's environment: name==version
    status text NOT NULL,  -- running, finished, failed, killed, unknown: as told last
    status_of text NOT NULL,  -- what has this status, start and end: the training, or the upload
    detail text NOT NULL,  -- exit code, type of the exception, signal
    started_at timestamptz NOT NULL,  -- by the uploader's clock, as ended_at
    ended_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),  -- when the uploader told something last
    PRIMARY KEY (experiment_id, upload_id)
);
ALTER TABLE uploads ENABLE ROW LEVEL SECURITY;
ALTER TABLE uploads FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON uploads USING (workspace_id = (SELECT current_workspace()));

-- Of an anonymous link's experiment, nothing says who made it, and where.
CREATE VIEW link_views.uploads AS SELECT * FROM uploads
    WHERE (SELECT current_setting('tbhub.is_anonymous', true)) = 'false';
"""


def upgrade() -> None:
    """Add the table, its policy and its view."""
    op.get_bind().exec_driver_sql(UPLOADS)
