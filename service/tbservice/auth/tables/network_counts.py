"""Counts of what waits, by the network that began it: rows of tables with a policy `counted`."""

from __future__ import annotations

from sqlalchemy import Connection

from tbservice.db.cluster import citus
from tbservice.db.pipeline import query_with_rls
from tbservice.db.schema_parts import has_column


def find_column(db: Connection, table: str) -> tuple[str, str]:
    """Return what an INSERT has for the column and its value: nothing before its migration."""
    return (", network", ", %(network)s") if has_column(db, table, "network") else ("", "")


def count_waiting(
    db: Connection, table: str, network: str, condition: str = "true"
) -> tuple[int, int]:
    """Return how many rows have not expired: begun from this network, and in all.

    Transactions that count wait for each other, so that what each then creates is counted too.
    """
    if not has_column(db, table, "network"):
        return 0, 0
    citus.lock_name(db, f"count {table}")
    ((of_network, total),) = query_with_rls(
        db,
        {"counted": table},
        f"""
            SELECT count(*) FILTER (WHERE network = %(network)s), count(*) FROM {table}
            WHERE {condition} AND expires_at > now()
        """,  # noqa: S608 - constants of the callers
        {"network": network},
    )
    return of_network, total
