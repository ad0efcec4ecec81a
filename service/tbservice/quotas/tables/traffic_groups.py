"""Queries on `traffic_groups`: a workspace's requests and exported bytes by person and experiment.

A key is the id of a person or an experiment, or `LINKS`, `MACHINES` or `OTHERS`, which are no ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import (
    NO_TRAFFIC,
    OTHERS,
    PERSON,
    GroupKey,
    Traffic,
    TrafficGroup,
)

TRAFFIC_GROUPS_ITEMS_MAX: Final = 1000
"""People, and experiments (items) of a month; the requests of later ones are one row, `OTHERS`."""

TRAFFIC_GROUPS_MONTHS_MAX: Final = 13
"""Months whose rows are kept, with the present one."""

_MONTH: Final = "date_trunc('month', now() AT TIME ZONE 'UTC')"


def exist(db: Connection) -> bool:
    """Return whether the schema has the table; a migration may add it meanwhile."""
    return has_table(db, "traffic_groups")


def add(db: Connection, workspace_id: WorkspaceId, added: Mapping[GroupKey, Traffic]) -> None:
    """Add to what these have in this month; with the first of a month, delete the oldest.

    After `workspace_traffic.add`, whose row lets one worker after the other count. Does nothing
    before the migration.
    """
    if not exist(db):
        return
    values = {"workspace_id": workspace_id, "months": TRAFFIC_GROUPS_MONTHS_MAX - 1}
    of_month = f"""
        SELECT kind, key FROM traffic_groups
        WHERE workspace_id = :workspace_id AND month = {_MONTH}
    """  # noqa: S608 - a constant
    known = {(row.kind, row.key) for row in db.execute(text(of_month), values)}
    if not known:
        of_before = f"""
            DELETE FROM traffic_groups WHERE workspace_id = :workspace_id
                AND month < {_MONTH} - :months * interval '1 month'
        """  # noqa: S608 - a constant
        db.execute(text(of_before), values)
    numbers = Counter(kind for kind, _ in known)
    rows: dict[GroupKey, Traffic] = {}
    for group, traffic in added.items():
        kind, key = group
        if group not in known:
            if numbers[kind] >= TRAFFIC_GROUPS_ITEMS_MAX:
                key = OTHERS
            known.add((kind, key))
            numbers[kind] += 1
        rows[kind, key] = rows.get((kind, key), NO_TRAFFIC).plus(traffic)
    if rows:
        _add_rows(db, workspace_id, rows)


def _add_rows(db: Connection, workspace_id: WorkspaceId, rows: Mapping[GroupKey, Traffic]) -> None:
    # Row by row: Citus takes no INSERT of many from arrays, under row policies.
    db.execute(
        text(f"""
            INSERT INTO traffic_groups AS t
                (workspace_id, month, kind, key, requests, export_bytes)
            VALUES (:workspace_id, {_MONTH}, :kind, :key, :requests, :export_bytes)
            ON CONFLICT (workspace_id, month, kind, key) DO UPDATE SET
                requests = t.requests + excluded.requests,
                export_bytes = t.export_bytes + excluded.export_bytes
        """),  # noqa: S608 - a constant
        [
            {"workspace_id": workspace_id, "kind": kind, "key": key, **traffic._asdict()}
            for (kind, key), traffic in rows.items()
        ],
    )


def list_all(db: Connection, workspace_id: WorkspaceId) -> list[TrafficGroup]:
    """Return the months that are kept, in no order; with names of people alone."""
    if not exist(db):
        return []
    rows = db.execute(
        text(f"""
            SELECT to_char(t.month, 'YYYY-MM'), t.kind, t.key, coalesce(u.name, ''),
                t.requests, t.export_bytes
            FROM traffic_groups AS t
            LEFT JOIN users AS u ON t.kind = '{PERSON}' AND u.user_id = t.key
            WHERE t.workspace_id = :workspace_id
                AND t.month > {_MONTH} - :months * interval '1 month'
        """),  # noqa: S608 - constants
        {"workspace_id": workspace_id, "months": TRAFFIC_GROUPS_MONTHS_MAX},
    )
    return [
        TrafficGroup(month, kind, key, name, Traffic(*counts))
        for month, kind, key, name, *counts in rows
    ]


def list_of_person(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId
) -> list[tuple[str, Traffic]]:
    """Return the months of a person as "YYYY-MM", the latest first."""
    if not exist(db):
        return []
    rows = db.execute(
        text("""
            SELECT to_char(month, 'YYYY-MM'), requests, export_bytes FROM traffic_groups
            WHERE workspace_id = :workspace_id AND kind = :kind AND key = :key
            ORDER BY month DESC
        """),
        {"workspace_id": workspace_id, "kind": PERSON, "key": user_id},
    )
    return [(month, Traffic(*counts)) for month, *counts in rows]


def forget(db: Connection, workspace_id: WorkspaceId, kind: str, key: str) -> int:
    """Delete what a person or an experiment has; return how many rows."""
    if not exist(db):
        return 0
    statement = text("""
        DELETE FROM traffic_groups
        WHERE workspace_id = :workspace_id AND kind = :kind AND key = :key
    """)
    return db.execute(statement, {"workspace_id": workspace_id, "kind": kind, "key": key}).rowcount
