"""Tensor and blob sequence points by step: for step ranges, the last k, and what came after a step."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INDEXES = """
CREATE INDEX tensor_points_by_step ON tensor_points (experiment_id, series_id, step);
CREATE INDEX blob_points_by_step ON blob_points (experiment_id, series_id, step);
"""


def upgrade() -> None:
    """Builds both indexes; writers of these two tables wait while they are built."""
    op.get_bind().exec_driver_sql(INDEXES)
