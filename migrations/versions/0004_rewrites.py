"""How often, and from which step on, a series was given points that do not come after its last one."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# A reader that goes on behind the last step it has is told by `rewrites` that there is more to it, and by
# `rewritten_from` where that begins: the least step ever written so, the greatest number where there is none.
COLUMNS = """
ALTER TABLE time_series
    ADD COLUMN rewrites bigint NOT NULL DEFAULT 0,
    ADD COLUMN rewritten_from bigint NOT NULL DEFAULT 9223372036854775807;
"""


def upgrade() -> None:
    """Adds both columns; no row is written for it."""
    op.get_bind().exec_driver_sql(COLUMNS)
