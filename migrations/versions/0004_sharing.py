"""Add what share links have beyond tokens: a slice of runs and tags, anonymity, and snapshots."""

from alembic import op

revision = "0004_sharing"
down_revision = "0003_metadata"
branch_labels = None
depends_on = None

SHARING = """
ALTER TABLE tokens
    ADD COLUMN is_link boolean NOT NULL DEFAULT false,  -- made to be passed on as a link
    ADD COLUMN run_pattern text,  -- RE2 that a run's complete name must match; NULL: all
    ADD COLUMN tag_pattern text,  -- the same of tags
    ADD COLUMN is_anonymous boolean NOT NULL DEFAULT false;  -- hides people, hosts and paths

-- The experiment that this one is an unchanging copy of, for frozen links.
ALTER TABLE experiments
    ADD COLUMN snapshot_of text COLLATE "C" REFERENCES experiments ON DELETE CASCADE;
CREATE INDEX experiments_by_source ON experiments (snapshot_of) WHERE snapshot_of IS NOT NULL;
"""


def upgrade() -> None:
    """Add the columns."""
    op.get_bind().exec_driver_sql(SHARING)
