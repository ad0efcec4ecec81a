"""Drop the unique constraint of which `time_series_names` has the same columns."""

from alembic import op

revision = "0021_one_index_of_names"
down_revision = "0020_series_names"
branch_labels = None
depends_on = None

LOCKS = {"time_series": "ACCESS EXCLUSIVE"}


def upgrade() -> None:
    """Drop it. No statement of any release names it."""
    op.get_bind().exec_driver_sql("ALTER TABLE time_series DROP CONSTRAINT time_series_by_name")
