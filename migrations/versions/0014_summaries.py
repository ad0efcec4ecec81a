"""Keep a summary of each scalar series: its minimum, its maximum, and how many are not finite."""

from alembic import op

revision = "0014_summaries"
down_revision = "0013_compressed_blocks"
branch_labels = None
depends_on = None

LOCKS = {"time_series": "ACCESS EXCLUSIVE"}

# One column, since each that a batch writes costs time; its layout is in `summary_format.py` of the
# tables of series. Empty: unknown. Readers compare it with last_step and rewrites, so that what a
# server of an earlier release adds makes it unknown, too.
COLUMN = "ALTER TABLE time_series ADD COLUMN summary bytea NOT NULL DEFAULT ''"


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
