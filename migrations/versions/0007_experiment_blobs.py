"""Which blobs were put through which experiment, and unfinished large blobs by experiment."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# The bytes of a blob are stored once in a workspace. A token of one experiment may name only those that were put
# through it: a digest alone proves nothing. Points that name a blob already are not looked up here.
RIGHTS = """
CREATE TABLE experiment_blobs (
    experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
    sha256 bytea NOT NULL,
    workspace_id bigint NOT NULL,
    PRIMARY KEY (experiment_id, sha256)
);
ALTER TABLE experiment_blobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE experiment_blobs FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON experiment_blobs USING (workspace_id = (SELECT current_workspace()));
"""

# No foreign key: the parts of a deleted experiment's uploads have to be swept from the object store, too. Uploads that
# were begun before this belong to no experiment: they begin again, and their parts are swept after the usual time.
UPLOADS = """
ALTER TABLE blob_uploads ADD COLUMN experiment_id text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE blob_uploads DROP CONSTRAINT blob_uploads_pkey;
ALTER TABLE blob_uploads ADD PRIMARY KEY (workspace_id, experiment_id, sha256, size);
"""


def upgrade() -> None:
    """Creates the table, and gives unfinished uploads their experiment; no row of a blob is written for it."""
    for statements in (RIGHTS, UPLOADS):
        op.get_bind().exec_driver_sql(statements)
