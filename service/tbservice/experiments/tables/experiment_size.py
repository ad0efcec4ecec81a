"""How much data an experiment has: runs, series, points, and an estimate of their bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.pipeline import EXPERIMENTS, fetch_of_experiments
from tbservice.objects.tables import blobs
from tbservice.types.identifiers import ExperimentId, WorkspaceId
from tbservice.types.quotas import Usage

SCALAR_BYTES: Final = 12
"""Bytes that a scalar takes in PostgreSQL, about: see docs/benchmarks.md."""


_DIGESTS_ITEMS: Final = 10_000
"""Blobs (items) whose sizes are read at once."""

_IS_LEFT: Final = """
    experiment_id = :id
    AND series_id NOT IN (SELECT series_id FROM erased_series WHERE experiment_id = :id)
"""

_SCALARS: Final = f"""
    SELECT (s.points + b.points)::bigint FROM (
        SELECT coalesce(sum(count), 0) AS points FROM time_series
        WHERE experiment_id = :id AND data_class = 1
    ) AS s, (
        SELECT coalesce(sum(count), 0) AS points FROM superseded_blocks WHERE {_IS_LEFT}
    ) AS b
"""  # noqa: S608 - a constant above

_TENSORS: Final = f"""
    SELECT count(*) AS points,
        coalesce(sum(coalesce(octet_length(data), object_size)), 0)::bigint AS bytes
    FROM (
        SELECT data, object_size FROM tensor_points WHERE {_IS_LEFT}
        UNION ALL
        SELECT data, object_size FROM superseded_tensors WHERE {_IS_LEFT}
    ) AS p
"""  # noqa: S608 - a constant above

_DIGESTS: Final = f"""
    SELECT workspace_id, digests FROM blob_points WHERE {_IS_LEFT}
    UNION ALL
    SELECT workspace_id, digests FROM superseded_blobs WHERE {_IS_LEFT}
"""  # noqa: S608 - a constant above


_SEQUENCES: Final = f"SELECT count(*) FROM ({_DIGESTS}) AS p"  # noqa: S608 - a constant above


class Size(NamedTuple):
    """Points, and their size in bytes, estimated."""

    points: int
    bytes: int


def measure(db: Connection, experiment_id: ExperimentId) -> Size:
    """Return the size of what an experiment has now, earlier attempts included.

    Reads the lengths of all tensors and blobs.
    """
    scalars: int = db.execute(text(_SCALARS), {"id": experiment_id}).scalar_one()
    tensors = db.execute(text(_TENSORS), {"id": experiment_id}).one()
    sequences = _measure_blobs(db, experiment_id)
    return Size(
        scalars + tensors.points + sequences.points,
        scalars * SCALAR_BYTES + tensors.bytes + sequences.bytes,
    )


def measure_usage(db: Connection, experiment_id: ExperimentId) -> Usage:
    """Return the points that an experiment has now, and the exact bytes of its tensors.

    Earlier attempts included. Without blobs, which are a workspace's.
    """
    parameters = {"id": experiment_id}
    scalars: int = db.execute(text(_SCALARS), parameters).scalar_one()
    tensors = db.execute(text(_TENSORS), parameters).one()
    sequences: int = db.execute(text(_SEQUENCES), parameters).scalar_one()
    return Usage(scalars, tensors.points, sequences, tensors.bytes)


def _measure_blobs(db: Connection, experiment_id: ExperimentId) -> Size:
    """Measure blob sequences, not by a join: blobs may be on another node of a cluster."""
    points = bytes_ = 0
    counts: Counter[bytes] = Counter()
    workspace_id = None
    for row in db.execute(text(_DIGESTS), {"id": experiment_id}):
        workspace_id = WorkspaceId(row.workspace_id)
        points += 1
        counts.update(map(bytes, row.digests))
    digests = list(counts)
    for start in range(0, len(digests), _DIGESTS_ITEMS):
        part = digests[start : start + _DIGESTS_ITEMS]
        assert workspace_id is not None  # noqa: S101 - there are digests
        found = blobs.find_all(db, workspace_id, part)
        bytes_ += sum(blob.size * counts[digest] for digest, blob in found.items())
    return Size(points, bytes_)


def count_runs_and_streams(
    db: Connection, experiment_id: ExperimentId, limit: int
) -> tuple[int, int]:
    """Return the runs of an experiment, deleted ones included, and its upload streams.

    Each number is at most about `limit`.
    """
    counts = ", ".join(
        f"(SELECT count(*) FROM (SELECT FROM {table} WHERE experiment_id = :id LIMIT :limit) AS t)"  # noqa: S608 - constants
        for table in ("runs", "deleted_runs", "upload_streams")
    )
    runs, deleted, streams = db.execute(
        text(f"SELECT {counts}"), {"id": experiment_id, "limit": limit}
    ).one()
    return runs + deleted, streams


class RunAndSeriesCounts(NamedTuple):
    """Runs and series, each at most as many as were to be counted."""

    runs: int
    series: int


def count_runs_and_series(
    db: Connection, experiment_ids: Sequence[ExperimentId], rows_max: int
) -> dict[ExperimentId, RunAndSeriesCounts]:
    """Return the counts of each experiment, which read at most `rows_max` rows of either kind."""
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, r.count, s.count FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (SELECT count(*) FROM (
                SELECT 1 FROM runs WHERE experiment_id = w.experiment_id LIMIT %(rows_max)s) AS r
            ) AS r
            CROSS JOIN LATERAL (SELECT count(*) FROM (
                SELECT 1 FROM time_series WHERE experiment_id = w.experiment_id LIMIT %(rows_max)s
            ) AS s) AS s
        """,  # noqa: S608 - a constant
        experiment_ids,
        {"rows_max": rows_max},
    )
    return {ExperimentId(id_): RunAndSeriesCounts(runs, series) for id_, runs, series in rows}
