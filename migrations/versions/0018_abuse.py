"""Suspend workspaces, people and what is shared; store what readers report of shared pages."""

from alembic import op

revision = "0018_abuse"
down_revision = "0017_audit"
branch_labels = None
depends_on = None

LOCKS: dict[str, str] = {}

# Both are of administrators, and of no tenant. No foreign keys: rows outlast what they are about.
STATEMENTS = (
    # One row per suspended thing, which each look-up of a grant reads: so no row-level security,
    # and the collation of the ids in other tables.
    """
    CREATE TABLE suspensions (
        subject text COLLATE "C" PRIMARY KEY,  -- 'workspace/7', 'person/ID', 'link/ID', …
        reason text COLLATE "C" NOT NULL,  -- readers see it
        suspended_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    # One row per report of a shared page.
    """
    CREATE TABLE page_reports (
        report_id text COLLATE "C" PRIMARY KEY,
        workspace_id bigint NOT NULL,
        experiment_id text COLLATE "C" NOT NULL,
        link_id text COLLATE "C" NOT NULL,  -- the share link by which it was read; '': none
        reported_at timestamptz NOT NULL DEFAULT now(),
        network text COLLATE "C" NOT NULL,  -- IPv4 address or IPv6 network of who reported
        user_id text COLLATE "C" NOT NULL,  -- who was signed in; '': nobody
        reason text COLLATE "C" NOT NULL,  -- `ReportReason` in types/reports.py
        details text NOT NULL,  -- plain text of a stranger
        contact text NOT NULL,  -- where they want an answer; '': nowhere
        closed_at timestamptz,  -- NULL: open
        note text NOT NULL DEFAULT ''  -- of the administrator who closed it
    )
    """,
    "CREATE INDEX page_reports_by_network ON page_reports (network, reported_at)",
    "CREATE INDEX page_reports_by_experiment ON page_reports (experiment_id)",
    "CREATE INDEX page_reports_closed ON page_reports (closed_at) WHERE closed_at IS NOT NULL",
    "ALTER TABLE page_reports ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE page_reports FORCE ROW LEVEL SECURITY",
    # Seen by the statements of one module alone, which set this.
    """CREATE POLICY reports ON page_reports
        USING ((SELECT current_setting('tbhub.page_reports', true)) = 'on')""",
)


def upgrade() -> None:
    """Create both tables."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
