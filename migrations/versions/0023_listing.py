"""Let each person star experiments, and save searches."""

from alembic import op

revision = "0023_listing"
down_revision = "0022_archived"
branch_labels = None
depends_on = None

LOCKS = {"experiments": "SHARE ROW EXCLUSIVE"}

STATEMENTS = (
    # One row per experiment and person who has starred it. Distribution key: experiment_id.
    """
    CREATE TABLE experiment_stars (
        experiment_id text COLLATE "C" NOT NULL REFERENCES experiments ON DELETE CASCADE,
        user_id text COLLATE "C" NOT NULL,
        workspace_id bigint NOT NULL,
        PRIMARY KEY (experiment_id, user_id)
    )
    """,
    "CREATE INDEX experiment_stars_by_user ON experiment_stars (workspace_id, user_id)",
    # One row per search that a person has given a name. Distribution key: workspace_id.
    """
    CREATE TABLE saved_searches (
        workspace_id bigint NOT NULL,
        user_id text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        query text NOT NULL,  -- of the address of the list, without the workspace
        PRIMARY KEY (workspace_id, user_id, name)
    )
    """,
    *(
        statement
        for table in ("experiment_stars", "saved_searches")
        for statement in (
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
            f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
            f"""CREATE POLICY tenant ON {table}
                USING (workspace_id = (SELECT current_workspace()))""",
        )
    ),
)


def upgrade() -> None:
    """Create the tables and their policies."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
