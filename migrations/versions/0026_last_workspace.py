"""Record which workspace a person used last: a sign-in on any browser begins with it."""

from alembic import op

revision = "0026_last_workspace"
down_revision = "0025_saved_views"
branch_labels = None
depends_on = None

LOCKS = {"users": "ACCESS EXCLUSIVE"}

# The workspace whose page the user opened last; NULL for none yet. No reference: it would lock
# `workspaces` too, and whether the user is still a member of it is checked where it is read.
COLUMN = "ALTER TABLE users ADD COLUMN last_workspace_id bigint"


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
