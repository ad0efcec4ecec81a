"""Queries on when the event files of a run began and ended: `upload_streams` and `runs`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice.db.pipeline import fetch_binary
from tbservice.types.identifiers import ExperimentId


class StreamTimes(NamedTuple):
    """First record and newest point of a stream: wall times in seconds; -inf if unknown."""

    stream_digest: bytes
    start_time: float
    last_wall_time: float


class RestartedRun(NamedTuple):
    """A run of which a file began after the first; `start_time` is that of the first."""

    run_id: int
    name: str
    start_time: float


def list_times(
    db: Connection, experiment_id: ExperimentId, run_ids: Collection[int], limit: int
) -> dict[int, list[StreamTimes]]:
    """Return the times of the first `limit` streams of each run, ordered by their start.

    A run without streams is missing.
    """
    rows = fetch_binary(
        db,
        """
            SELECT w.run_id, s.stream_digest, s.start_time, s.last_wall_time
            FROM unnest(%(run_ids)s::bigint[]) AS w (run_id)
            CROSS JOIN LATERAL (
                SELECT stream_digest, start_time, last_wall_time FROM upload_streams
                WHERE experiment_id = %(experiment_id)s AND run_id = w.run_id
                ORDER BY start_time NULLS FIRST LIMIT %(limit)s
            ) AS s
        """,
        {"experiment_id": experiment_id, "run_ids": list(run_ids), "limit": limit},
    )
    times: defaultdict[int, list[StreamTimes]] = defaultdict(list)
    for run_id, digest, start, last in rows:
        times[run_id].append(
            StreamTimes(
                digest, -math.inf if start is None else start, -math.inf if last is None else last
            )
        )
    return times


def list_file_names(
    db: Connection, experiment_id: ExperimentId, run_ids: Collection[int], limit: int
) -> dict[int, list[tuple[float, str]]]:
    """Return (start, name) of the first `limit` files of each run, ordered by their start.

    Files of unknown start are left out. Readers of a restricted link may not know the names.
    """
    rows = fetch_binary(
        db,
        """
            SELECT w.run_id, s.start_time, s.file_name
            FROM unnest(%(run_ids)s::bigint[]) AS w (run_id)
            CROSS JOIN LATERAL (
                SELECT start_time, file_name FROM upload_streams
                WHERE experiment_id = %(experiment_id)s AND run_id = w.run_id
                    AND start_time IS NOT NULL
                ORDER BY start_time LIMIT %(limit)s
            ) AS s
        """,
        {"experiment_id": experiment_id, "run_ids": list(run_ids), "limit": limit},
    )
    names: defaultdict[int, list[tuple[float, str]]] = defaultdict(list)
    for run_id, start, name in rows:
        names[run_id].append((start, name))
    return names


def list_restarted_runs(db: Connection, experiment_id: ExperimentId) -> list[RestartedRun]:
    """Return the runs of which a file began after the first, in the order of creation."""
    rows = fetch_binary(
        db,
        """
            SELECT run_id, name, start_time FROM runs
            WHERE experiment_id = %(experiment_id)s AND last_start_time > start_time
            ORDER BY run_id
        """,
        {"experiment_id": experiment_id},
    )
    return [RestartedRun(*row) for row in rows]
