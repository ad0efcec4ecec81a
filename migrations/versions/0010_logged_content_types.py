"""The content type that was logged with an audio clip, which is data; what a blob is served as stays in `blobs`."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# Of the point, as one blob may be logged under several types. Empty where none was logged, and in the points that are
# older than this column; a NULL would take more room, as it would be the ninth column's.
COLUMN = "ALTER TABLE blob_points ADD COLUMN logged_content_type text NOT NULL DEFAULT ''"


def upgrade() -> None:
    """Add the column; no row is written for it."""
    op.get_bind().exec_driver_sql(COLUMN)
