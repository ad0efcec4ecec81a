"""Let people tag runs, as they tag experiments."""

from alembic import op

revision = "0031_run_tags"
down_revision = "0030_retention"
branch_labels = None
depends_on = None

LOCKS = {"runs": "ACCESS EXCLUSIVE"}

# No row is rewritten: PostgreSQL keeps a constant default of all rows in its catalog. The view of
# restricted links stays without it: what members write about runs is for members.
COLUMN = "ALTER TABLE runs ADD COLUMN tags text[] NOT NULL DEFAULT '{}'"


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
