"""Bind the tokens of browsers to the browser session that they were made for.

They are for the content origin, where the session's cookie is not: see docs/decisions/0027.
"""

from alembic import op

revision = "0005_content"
down_revision = "0004_sharing"
branch_labels = None
depends_on = None

LOCKS = {"browser_sessions": "SHARE ROW EXCLUSIVE", "tokens": "ACCESS EXCLUSIVE"}

CONTENT = """
ALTER TABLE tokens
    -- Deleted with it, when its person signs out or ends it; NULL: made for no session.
    ADD COLUMN browser_session_id text COLLATE "C" REFERENCES browser_sessions ON DELETE CASCADE;
CREATE INDEX tokens_by_browser_session ON tokens (browser_session_id)
    WHERE browser_session_id IS NOT NULL;
"""


def upgrade() -> None:
    """Add the column and its index."""
    op.get_bind().exec_driver_sql(CONTENT)
