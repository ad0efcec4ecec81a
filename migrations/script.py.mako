"""${message}."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

LOCKS = {}  # which tables of before it locks, in which mode: a test compares


def upgrade() -> None:
    """${message}."""
