"""Index the names of series with their workspace, which the row policy of `time_series` reads."""

from alembic import op

revision = "0020_series_names"
down_revision = "0019_upload_status"
branch_labels = None
depends_on = None

LOCKS = {"time_series": "SHARE UPDATE EXCLUSIVE"}
CONCURRENT = True

# As `time_series_by_name`, which the next migration drops. With the column of the policy, names are
# listed from the index alone: a row takes 500 bytes, its entry 68 (docs/decisions/0052).
STATEMENTS = (
    "DROP INDEX CONCURRENTLY IF EXISTS time_series_names",
    """
    CREATE UNIQUE INDEX CONCURRENTLY time_series_names ON time_series
        (experiment_id, run_id, tag_id) INCLUDE (workspace_id)
    """,
)


def upgrade() -> None:
    """Create the index."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
