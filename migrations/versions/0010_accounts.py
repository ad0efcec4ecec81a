"""Record who created a workspace: whose share of a worker its machines use (decision 0018)."""

from alembic import op

revision = "0010_accounts"
down_revision = "0009_counters"
branch_labels = None
depends_on = None

LOCKS = {"workspaces": "ACCESS EXCLUSIVE"}

# A user; NULL for an administrator of the service, and for workspaces of before. No foreign key: it
# would lock `users` too, and users are never deleted.
CREATOR = """ALTER TABLE workspaces ADD COLUMN created_by text COLLATE "C" """


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(CREATOR)
