"""Usage of a workspace, summed over `experiments` and `usage_counters`; no series are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.experiments.tables.experiments import show_deleted
from tbservice.quotas.tables import usage_counters
from tbservice.types.experiments import ExperimentUsage, UsageGroup
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import Usage

_NO_COUNTERS: Final = (
    f"(SELECT NULL AS experiment_id, 0 AS {', 0 AS '.join(Usage._fields)} WHERE false)"
)
"""Before the migration: all experiments count as what arrived."""

_SUMS: Final = ", ".join(f"sum({name})::bigint AS {name}" for name in Usage._fields)


def count_all(db: Connection, workspace_id: WorkspaceId) -> tuple[int, int, int, int]:
    """Return the numbers of experiments, of frozen copies, of those without a counter, and points.

    The points are those that arrived in the last, which deleted ones are not among.
    """
    with show_deleted(db):
        row = db.execute(
            text(f"""
                WITH e AS ({_rows(db)})
                SELECT count(*) FILTER (WHERE NOT is_copy) AS experiments,
                    count(*) FILTER (WHERE is_copy) AS copies,
                    count(*) FILTER (WHERE NOT is_counted AND NOT is_deleted) AS uncounted,
                    coalesce(sum(scalars) FILTER (WHERE NOT is_counted AND NOT is_deleted), 0)
                        ::bigint AS arrived
                FROM e
            """),  # noqa: S608 - constants
            {"workspace_id": workspace_id},
        ).one()
    return row.experiments, row.copies, row.uncounted, row.arrived


def list_groups(
    db: Connection, workspace_id: WorkspaceId
) -> tuple[list[UsageGroup], list[UsageGroup]]:
    """Return usage by month of creation, the latest first, and by who created, the most first.

    The month is "YYYY-MM" in UTC. The name of a person; empty for machines' tokens.
    """
    with show_deleted(db):
        rows = db.execute(
            text(f"""
                WITH e AS MATERIALIZED ({_rows(db)}), sums AS (
                    SELECT grouping(month) = 0 AS is_month, month, created_by,
                        count(*) FILTER (WHERE NOT is_copy) AS experiments, {_SUMS}
                    FROM e GROUP BY GROUPING SETS ((month), (created_by))
                )
                SELECT s.*, u.name FROM sums AS s LEFT JOIN users AS u ON u.user_id = s.created_by
            """),  # noqa: S608 - constants
            {"workspace_id": workspace_id},
        ).all()
    months = [_group(row, row.month, row.month) for row in rows if row.is_month]
    people = [_group(row, row.created_by or "", row.name or "") for row in rows if not row.is_month]
    months.sort(key=lambda group: group.key, reverse=True)
    people.sort(key=lambda group: group.usage.points, reverse=True)
    return months, people


def list_largest(db: Connection, workspace_id: WorkspaceId, limit: int) -> list[ExperimentUsage]:
    """Return the experiments with the most points, each with its frozen copies.

    With deleted ones that can be restored.
    """
    with show_deleted(db):
        rows = db.execute(
            text(f"""
                WITH e AS MATERIALIZED ({_rows(db)})
                SELECT shown AS experiment_id,
                    coalesce(max(name) FILTER (WHERE NOT is_copy), max(name)) AS name,
                    bool_or(is_deleted) AS is_deleted,
                    count(*) FILTER (WHERE is_copy) AS frozen_copies, {_SUMS}
                FROM e GROUP BY shown
                ORDER BY sum(scalars) + sum(tensors) + sum(blob_sequences) DESC, shown
                LIMIT :limit
            """),  # noqa: S608 - constants
            {"workspace_id": workspace_id, "limit": limit},
        ).all()
    return [
        ExperimentUsage(
            ExperimentId(row.experiment_id),
            row.name or "",
            _usage(row),
            row.frozen_copies,
            is_deleted=row.is_deleted,
        )
        for row in rows
    ]


def find_names(
    db: Connection, workspace_id: WorkspaceId, experiment_ids: Iterable[str]
) -> dict[str, tuple[ExperimentId, str, bool]]:
    """Return by id the experiment (of a frozen copy, the copied), its name, and if it is deleted.

    Erased ones are missing.
    """
    with show_deleted(db):
        rows = db.execute(
            text("""
                SELECT coalesce(e.snapshot_of, e.experiment_id) AS shown, e.experiment_id, e.name,
                    e.deleted_at IS NOT NULL AS is_deleted
                FROM experiments AS e
                WHERE e.workspace_id = :workspace_id AND e.experiment_id = ANY (:ids)
            """),
            {"workspace_id": workspace_id, "ids": list(experiment_ids)},
        ).all()
    return {row.experiment_id: (ExperimentId(row.shown), row.name, row.is_deleted) for row in rows}


def list_to_count(
    db: Connection, workspace_id: WorkspaceId, *, counts_all: bool
) -> list[ExperimentId]:
    """Return the experiments without a counter, or all that are not deleted."""
    rows = db.execute(
        text("""
            SELECT e.experiment_id FROM experiments AS e
            WHERE e.workspace_id = :workspace_id AND (:counts_all OR NOT EXISTS (
                SELECT FROM usage_counters AS u WHERE u.experiment_id = e.experiment_id))
        """),
        {"workspace_id": workspace_id, "counts_all": counts_all},
    )
    return [ExperimentId(each) for each in rows.scalars()]


def _rows(db: Connection) -> str:
    """Return a query for all experiments of a workspace that count, with what they store."""
    counted = "u.experiment_id IS NOT NULL"
    others = ", ".join(f"coalesce(u.{name}, 0) AS {name}" for name in Usage._fields[1:])
    return f"""
        SELECT coalesce(e.snapshot_of, e.experiment_id) AS shown, e.name, e.created_by,
            to_char(e.created_at AT TIME ZONE 'UTC', 'YYYY-MM') AS month,
            e.snapshot_of IS NOT NULL AS is_copy, e.deleted_at IS NOT NULL AS is_deleted,
            {counted} AS is_counted,
            coalesce(u.scalars, e.points) AS scalars, {others}
        FROM experiments AS e
        LEFT JOIN {"usage_counters" if usage_counters.exist(db) else _NO_COUNTERS} AS u
            ON u.experiment_id = e.experiment_id
        WHERE e.workspace_id = :workspace_id AND (e.deleted_at IS NULL OR e.erase_at > now())
    """  # noqa: S608 - constants


def _group(row: Row[Any], key: str, name: str) -> UsageGroup:
    return UsageGroup(key, name, row.experiments, _usage(row))


def _usage(row: Row[Any]) -> Usage:
    return Usage(*(getattr(row, name) for name in Usage._fields))
