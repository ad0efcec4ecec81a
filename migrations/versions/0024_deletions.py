"""Delete workspaces and people: hidden at once, as what is suspended is, and erased days later."""

from alembic import op

revision = "0024_deletions"
down_revision = "0023_listing"
branch_labels = None
depends_on = None

LOCKS = {"suspensions": "ACCESS EXCLUSIVE"}

STATEMENTS = (
    # Look-ups of grants read these rows already. One without a reason is deleted, not suspended.
    """
    ALTER TABLE suspensions
        ADD COLUMN deleted_at timestamptz,  -- of workspaces and people; NULL: not deleted
        ADD COLUMN erase_at timestamptz,  -- until then it can be restored
        ADD COLUMN deleted_by text COLLATE "C"  -- who may restore it; '': administrators alone
    """,
)


def upgrade() -> None:
    """Add the columns."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
