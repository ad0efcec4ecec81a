"""Add the audit log: records that the service can add and read, but neither change nor delete."""

from alembic import op

revision = "0017_audit"
down_revision = "0016_quotas"
branch_labels = None
depends_on = None

LOCKS: dict[str, str] = {}

# No foreign keys: records outlast what they are about.
TABLES = """
-- One row per act. Distribution key: workspace_id.
CREATE TABLE audit_records (
    workspace_id bigint NOT NULL,  -- 0: of no workspace
    number bigint NOT NULL,  -- from 1 on, in the order of the commits
    recorded_at timestamptz NOT NULL,
    act text COLLATE "C" NOT NULL,  -- `Act` in audit/acts.py
    user_id text COLLATE "C" NOT NULL,  -- who; '': a machine, or nobody known
    means text COLLATE "C" NOT NULL,  -- session, token, link, invitation, command; '': none
    means_id text COLLATE "C" NOT NULL,  -- the id of that session, token or link; the command
    network text COLLATE "C" NOT NULL,  -- IPv4 address or IPv6 network of the client
    request_id text COLLATE "C" NOT NULL,  -- `X-Request-ID` of the answer
    object_id text COLLATE "C" NOT NULL,  -- what it was done to
    details text NOT NULL,  -- a JSON object; text, since its bytes are hashed
    digest bytea NOT NULL,  -- SHA-256 of all of these and of the digest before: audit/chain.py
    PRIMARY KEY (workspace_id, number)
);
CREATE INDEX audit_records_by_object ON audit_records (workspace_id, object_id, recorded_at);
CREATE INDEX audit_records_by_act ON audit_records (workspace_id, act, recorded_at);

-- The end of a workspace's chain of records. Distribution key: workspace_id.
CREATE TABLE audit_chains (
    workspace_id bigint PRIMARY KEY,  -- 0: of no workspace
    last_number bigint NOT NULL,
    last_digest bytea NOT NULL,
    day integer NOT NULL,  -- of the last record, in days since 1970 (UTC)
    day_items bigint NOT NULL  -- records of that day that count for its limit
);
"""

# There is no policy for UPDATE: no row can be changed, also by the owner, whom they bind as well.
POLICIES = """
ALTER TABLE audit_records ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_records FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_records FOR SELECT
    USING (workspace_id = (SELECT current_workspace()));
CREATE POLICY added ON audit_records FOR INSERT
    WITH CHECK (workspace_id = (SELECT current_workspace()));
-- For `tbservice expire-audit`, as the owner of the table.
CREATE POLICY expired ON audit_records FOR DELETE
    USING (workspace_id = (SELECT current_workspace())
        AND (SELECT current_setting('tbhub.audit_expiry', true)) = 'on'
        AND recorded_at < now() - interval '1 day');

ALTER TABLE audit_chains ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_chains FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON audit_chains USING (workspace_id = (SELECT current_workspace()));
"""


def upgrade() -> None:
    """Create both tables."""
    for statement in (*TABLES.split(";\n"), *POLICIES.split(";\n")):
        if statement.strip():
            op.get_bind().exec_driver_sql(statement)
