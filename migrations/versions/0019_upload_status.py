"""Find uploads by their status, and those that are running by when they were heard of last."""

from alembic import op

revision = "0019_upload_status"
down_revision = "0018_abuse"
branch_labels = None
depends_on = None

CONCURRENT = True
LOCKS = {"uploads": "SHARE UPDATE EXCLUSIVE"}

COLUMNS = "workspace_id, status, seen_at, experiment_id"  # so that the index alone is read
STATEMENTS = (
    "DROP INDEX CONCURRENTLY IF EXISTS uploads_by_status",
    f"CREATE INDEX CONCURRENTLY uploads_by_status ON uploads ({COLUMNS})",
)


def upgrade() -> None:
    """Create the index."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
