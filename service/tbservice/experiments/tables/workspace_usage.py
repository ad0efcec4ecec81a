"""Usage of a workspace, summed over `experiments`, their points, and `blobs`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from tbservice.types.experiments import ExperimentUsage, WorkspaceUsage
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_POINTS: Final = """
    WITH points AS MATERIALIZED (
        SELECT coalesce(snapshot_of, experiment_id) AS experiment_id,
            CASE WHEN snapshot_of IS NULL THEN name END AS name,
            s.series, s.points + p.points AS points
        FROM experiments AS e CROSS JOIN LATERAL (
            SELECT count(*) AS series, coalesce(sum(count), 0)::bigint AS points
            FROM time_series AS t WHERE t.experiment_id = e.experiment_id
        ) AS s CROSS JOIN LATERAL (
            SELECT coalesce(sum(count), 0)::bigint AS points FROM (
                SELECT sum(count) FROM superseded_blocks AS b
                WHERE b.experiment_id = e.experiment_id
                UNION ALL SELECT count(*) FROM superseded_tensors AS t
                WHERE t.experiment_id = e.experiment_id
                UNION ALL SELECT count(*) FROM superseded_blobs AS b
                WHERE b.experiment_id = e.experiment_id
            ) AS superseded (count)
        ) AS p
        WHERE workspace_id = :workspace_id AND deleted_at IS NULL
    ), sums AS (
        SELECT experiment_id, max(name) AS name, sum(series)::bigint AS series,
            sum(points)::bigint AS points
        FROM points GROUP BY experiment_id
    )
    SELECT NULL AS experiment_id, '' AS name, count(*) AS experiments,
        coalesce(sum(series), 0)::bigint AS series,
        coalesce(sum(points), 0)::bigint AS points
    FROM sums
    UNION ALL (
        SELECT experiment_id, name, 1, series, points FROM sums
        WHERE points > 0 ORDER BY points DESC, experiment_id LIMIT :largest
    )
"""


def read(db: Connection, workspace_id: WorkspaceId, largest: int) -> WorkspaceUsage:
    """Return the sums of a workspace, and its `largest` experiments by points.

    It reads the row of every series: about a second per million. Points of earlier attempts count,
    and those of an experiment's frozen copies, as the experiment's.
    """
    rows = db.execute(
        text(_POINTS),
        {"workspace_id": workspace_id, "largest": largest},
    ).all()
    blobs = db.execute(
        text("""
            SELECT count(*) AS blobs, coalesce(sum(size), 0)::bigint AS bytes
            FROM blobs WHERE workspace_id = :workspace_id
        """),
        {"workspace_id": workspace_id},
    ).one()
    (total,) = (row for row in rows if row.experiment_id is None)
    listed = sorted(
        (row for row in rows if row.experiment_id is not None), key=lambda row: -row.points
    )
    return WorkspaceUsage(
        total.experiments,
        total.series,
        total.points,
        blobs.blobs,
        blobs.bytes,
        [
            ExperimentUsage(ExperimentId(row.experiment_id), row.name, row.series, row.points)
            for row in listed
        ],
    )
