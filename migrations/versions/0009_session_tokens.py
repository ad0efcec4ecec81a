"""Browser sessions' tokens are told from those that people make, so that they can be deleted once they expired."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMN = "ALTER TABLE tokens ADD COLUMN is_session boolean NOT NULL DEFAULT false"
INDEX = "CREATE INDEX tokens_of_sessions ON tokens (workspace_id, expires_at) WHERE is_session"

# Forced row-level security would hide every row from the migration, which has no workspace; the owner is exempt else.
MARK = """
ALTER TABLE tokens NO FORCE ROW LEVEL SECURITY;
UPDATE tokens SET is_session = true
    WHERE label = 'browser session' AND scopes = '{read}' AND expires_at <= created_at + interval '12 hours 1 minute';
ALTER TABLE tokens FORCE ROW LEVEL SECURITY;
"""


def upgrade() -> None:
    """Adds the column, marks the sessions there are, and indexes them by their end."""
    for statement in (COLUMN, MARK, INDEX):
        op.get_bind().exec_driver_sql(statement)
