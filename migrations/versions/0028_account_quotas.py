"""Limit what the workspaces of an account may store together."""

from alembic import op

revision = "0028_account_quotas"
down_revision = "0027_operators"
branch_labels = None
depends_on = None

LOCKS: dict[str, str] = {}

# Of no tenant. An account is a user; no foreign key, since the row outlasts an erased person, whose
# workspaces others may own. NULL: the limit of the plan.
TABLE = """
    CREATE TABLE account_quotas (
        account text COLLATE "C" PRIMARY KEY,
        plan text,
        points bigint,
        tensor_bytes bigint,
        blob_bytes bigint,
        experiments bigint,
        members bigint
    )
"""


def upgrade() -> None:
    """Create the table."""
    op.get_bind().exec_driver_sql(TABLE)
