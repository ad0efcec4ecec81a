"""Let a database require programs that read compressed blocks of scalars: see decision 40.

The revision itself is what it may require. Blocks are as before until it does.
"""

from alembic import op

revision = "0013_compressed_blocks"
down_revision = "0012_sponsors"
branch_labels = None
depends_on = None

LOCKS: dict[str, str] = {}

# The migration that programs must know to start on this database (`db/schema_versions.py`); NULL:
# all that knew the schema before may. Of one row, which programs read when they connect.
COLUMN = "ALTER TABLE alembic_version ADD COLUMN IF NOT EXISTS required_revision text"


def upgrade() -> None:
    """Add the column."""
    op.get_bind().exec_driver_sql(COLUMN)
