"""The points of a series that came last, a few, in the series' own row: they need no row of the tail each."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Raw records, as in a row of the tail that is not packed; they are newer than every row of it.
COLUMN = "ALTER TABLE time_series ADD COLUMN tail_end bytea NOT NULL DEFAULT ''"


def upgrade() -> None:
    """Adds the column; no row is written for it."""
    op.get_bind().exec_driver_sql(COLUMN)
