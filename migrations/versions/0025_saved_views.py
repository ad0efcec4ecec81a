"""Keep the state of the page of runs under a name, with its history."""

from alembic import op

revision = "0025_saved_views"
down_revision = "0024_deletions"
branch_labels = None
depends_on = None

LOCKS: dict[str, str] = {}

STATEMENTS = (
    # One row per version of a view. Distribution key: workspace_id.
    """
    CREATE TABLE saved_views (
        workspace_id bigint NOT NULL,
        view_id text COLLATE "C" NOT NULL,
        version integer NOT NULL,  -- from 1
        name text COLLATE "C" NOT NULL,
        page text NOT NULL,  -- runs or compare
        query text NOT NULL,  -- of the address of the page
        saved_by text COLLATE "C",  -- the person; NULL for a machine
        saved_at timestamptz NOT NULL DEFAULT now(),
        is_current boolean NOT NULL,  -- the last version
        PRIMARY KEY (workspace_id, view_id, version)
    )
    """,
    "CREATE UNIQUE INDEX saved_views_by_name ON saved_views (workspace_id, name) WHERE is_current",
    "ALTER TABLE saved_views ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE saved_views FORCE ROW LEVEL SECURITY",
    """CREATE POLICY tenant ON saved_views
        USING (workspace_id = (SELECT current_workspace()))""",
)


def upgrade() -> None:
    """Create the table and its policy."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
