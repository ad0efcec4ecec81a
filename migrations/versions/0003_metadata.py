"""Add metadata of experiments: tags, notes, properties, where it came from, and deletion."""

from alembic import op

revision = "0003_metadata"
down_revision = "0002_people"
branch_labels = None
depends_on = None

METADATA = """
ALTER TABLE experiments
    ADD COLUMN tags text[] NOT NULL DEFAULT '{}',  -- for people, sorted; not the tags of series
    ADD COLUMN notes text NOT NULL DEFAULT '',  -- Markdown
    ADD COLUMN properties jsonb NOT NULL DEFAULT '{}',  -- key-value pairs, the values are texts
    ADD COLUMN origin jsonb NOT NULL DEFAULT '{}',  -- where it came from: host, user, command, git
    ADD COLUMN deleted_at timestamptz;  -- its owner deleted it: hidden, and erased some days later
"""


def upgrade() -> None:
    """Add the columns."""
    op.get_bind().exec_driver_sql(METADATA)
