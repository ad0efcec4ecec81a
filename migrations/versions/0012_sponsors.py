"""Record who invited a person: all whom one person invited share a part of the server."""

from alembic import op

revision = "0012_sponsors"
down_revision = "0011_login_networks"
branch_labels = None
depends_on = None

LOCKS = {"users": "ACCESS EXCLUSIVE"}

# The user who invited this one, or who invited that one, up to one whom nobody invited. NULL for
# one whom an administrator or a provider admitted, and for those from before this column.
COLUMN = 'ALTER TABLE users ADD COLUMN sponsor text COLLATE "C"'


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
