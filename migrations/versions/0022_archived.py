"""Find archived experiments by their numbers: not listed, and neither deleted nor copies."""

from alembic import op

revision = "0022_archived"
down_revision = "0021_one_index_of_names"
branch_labels = None
depends_on = None

CONCURRENT = True
LOCKS = {"experiments": "SHARE UPDATE EXCLUSIVE"}

KEY = "(workspace_id, number)"
CONDITION = "NOT is_listed AND deleted_at IS NULL AND snapshot_of IS NULL"
STATEMENTS = (
    "DROP INDEX CONCURRENTLY IF EXISTS experiments_archived",
    f"CREATE INDEX CONCURRENTLY experiments_archived ON experiments {KEY} WHERE {CONDITION}",
)


def upgrade() -> None:
    """Create the index."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
