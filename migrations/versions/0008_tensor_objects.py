"""Tensors whose bytes are an object in S3: their points hold its SHA-256 and size instead."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# NOT VALID: the rows that are there have data all, and are not read for it.
COLUMNS = """
ALTER TABLE tensor_points
    ALTER COLUMN data DROP NOT NULL,
    ADD COLUMN object_sha256 bytea,
    ADD COLUMN object_size bigint,
    ADD CONSTRAINT tensor_points_data CHECK (
        (data IS NULL) = (object_sha256 IS NOT NULL) AND (data IS NULL) = (object_size IS NOT NULL)
    ) NOT VALID
"""


def upgrade() -> None:
    """Add the columns; no row is written or read for it."""
    op.get_bind().exec_driver_sql(COLUMNS)
