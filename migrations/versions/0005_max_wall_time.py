"""The greatest wall time of a series, which need not be that of its greatest step: a job that restarts goes back."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Of series that are older than this column it is read as that of their last step, until they get points that are newer.
COLUMN = "ALTER TABLE time_series ADD COLUMN max_wall_time float8 NOT NULL DEFAULT '-infinity'"


def upgrade() -> None:
    """Adds the column; no row is written for it."""
    op.get_bind().exec_driver_sql(COLUMN)
