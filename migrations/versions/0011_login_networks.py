"""Record from which network a command asks for its login, to show it and to bound their number."""

from alembic import op

revision = "0011_login_networks"
down_revision = "0010_accounts"
branch_labels = None
depends_on = None

LOCKS = {"device_logins": "ACCESS EXCLUSIVE"}

# An IPv4 address or an IPv6 /64; '' for one that a server of before recorded.
COLUMN = "ALTER TABLE device_logins ADD COLUMN network text NOT NULL DEFAULT ''"

# Counting those that wait, of one network and in all, reads no secret of them, and needs no one's.
POLICY = """
CREATE POLICY counted ON device_logins FOR SELECT
    USING (user_id IS NULL AND expires_at > now()
        AND (SELECT current_setting('tbhub.counted', true)) = 'device_logins')
"""


def upgrade() -> None:
    """Add the column and the policy."""
    db = op.get_bind()
    db.exec_driver_sql(COLUMN)
    db.exec_driver_sql(POLICY)
