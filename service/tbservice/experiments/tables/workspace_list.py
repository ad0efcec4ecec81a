"""Queries for the list of all workspaces: which of them, and in which order."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.database import set_local
from tbservice.experiments.tables import page_reports
from tbservice.quotas.tables import workspace_traffic
from tbservice.types.identifiers import WorkspaceId

_SIZES: Final = """
    SELECT workspace_id, sum(tensor_bytes + blob_bytes) AS bytes,
        sum(scalars + tensors + blob_sequences) AS points
    FROM usage_counters GROUP BY workspace_id
"""
_USES: Final = """
    SELECT workspace_id, max(last_at) AS last_at FROM workspace_traffic GROUP BY workspace_id
"""
_NO_USES: Final = "SELECT 0 AS workspace_id, now() AS last_at WHERE false"
_NO_SIZES: Final = "SELECT 0 AS workspace_id, 0 AS bytes, 0 AS points WHERE false"
_ORDERS: Final = {
    "bytes": "coalesce(z.bytes, 0) DESC, coalesce(z.points, 0) DESC",
    "points": "coalesce(z.points, 0) DESC",
    "used": "t.last_at DESC NULLS LAST",
    "reports": "coalesce(r.reports, 0) DESC",
    "name": "lower(w.name)",
    "newest": "w.created_at DESC",
    "oldest": "w.created_at",
}
_STATES: Final = {
    "": "true",
    "active": "s.subject IS NULL",
    "suspended": "s.reason <> ''",
    "deleted": "s.erase_at IS NOT NULL",
    "reported": "r.reports > 0",
}
ORDERS: Final = tuple(_ORDERS)
STATES: Final = tuple(_STATES)


def list_page(
    db: Connection, order: str, state: str, written: str, limit: int, offset: int
) -> tuple[int, list[WorkspaceId]]:
    """Return how many workspaces there are, and a page of them; no erased ones.

    Args:
        db: A transaction of no workspace.
        order: One of `ORDERS`.
        state: One of `STATES`.
        written: An id, or a part of the name in any case; "" for all.
        limit: Workspaces at most.
        offset: Workspaces before the page.
    """
    page_reports.open_table(db)
    set_local(db, "operator", "on")
    uses = _USES if order == "used" and workspace_traffic.exist(db) else _NO_USES
    row = db.execute(
        text(f"""
            WITH z AS MATERIALIZED ({_SIZES if order in ("bytes", "points") else _NO_SIZES}),
            t AS MATERIALIZED ({uses}),
            r AS MATERIALIZED (
                SELECT workspace_id, count(*) AS reports FROM page_reports
                WHERE closed_at IS NULL GROUP BY workspace_id),
            found AS MATERIALIZED (
                SELECT w.workspace_id, row_number() OVER (
                    ORDER BY {_ORDERS[order]}, w.workspace_id) AS place
                FROM workspaces AS w
                LEFT JOIN z ON z.workspace_id = w.workspace_id
                LEFT JOIN t ON t.workspace_id = w.workspace_id
                LEFT JOIN r ON r.workspace_id = w.workspace_id
                LEFT JOIN suspensions AS s ON s.subject = 'workspace/' || w.workspace_id
                WHERE w.name <> '' AND {_STATES[state]}
                    AND (:written = '' OR w.workspace_id::text = :written
                        OR position(lower(:written) IN lower(w.name)) > 0))
            SELECT (SELECT count(*) FROM found) AS total, ARRAY(
                SELECT workspace_id FROM found WHERE place > :offset
                ORDER BY place LIMIT :limit) AS page
        """),  # noqa: S608 - constants
        {"written": written, "limit": limit, "offset": offset},
    ).one()
    set_local(db, "operator", "off")
    return row.total, [WorkspaceId(each) for each in row.page]
