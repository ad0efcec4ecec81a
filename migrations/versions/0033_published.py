"""Let owners publish an experiment to search engines."""

from alembic import op

revision = "0033_published"
down_revision = "0032_traffic_groups"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "ACCESS EXCLUSIVE"}

# No row is rewritten: PostgreSQL keeps a constant default of all rows in its catalog.
COLUMN = "ALTER TABLE experiments ADD COLUMN is_published boolean NOT NULL DEFAULT false"


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
