"""Let a workspace say when new experiments expire, and bound sign-ins of a network that wait."""

from alembic import op

revision = "0030_retention"
down_revision = "0029_traffic"
branch_labels = None
depends_on = None

# No transaction that holds the second waits for the first.
LOCKS = {"workspaces": "ACCESS EXCLUSIVE", "sign_in_attempts": "ACCESS EXCLUSIVE"}

STATEMENTS = (
    # Days after which a new experiment expires, unless it says so itself; NULL: never.
    "ALTER TABLE workspaces ADD COLUMN expires_days integer",
    # An IPv4 address or an IPv6 /48; '' for one that a server of before recorded.
    "ALTER TABLE sign_in_attempts ADD COLUMN network text NOT NULL DEFAULT ''",
    # As of `device_logins`: counting those that wait reads no secret of them.
    """CREATE POLICY counted ON sign_in_attempts FOR SELECT
        USING (expires_at > now()
            AND (SELECT current_setting('tbhub.counted', true)) = 'sign_in_attempts')""",
)


def upgrade() -> None:
    """Add both columns, and the policy."""
    for statement in STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
