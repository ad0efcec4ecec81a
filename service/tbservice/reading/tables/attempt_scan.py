"""Queries for tensor and blob sequence points as they were before a wall time.

Each step has its newest point before that time, among the shown and the superseded ones. Every
function needs a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final

from sqlalchemy import Connection

from tbservice.db.arrays import decode_int8s, encode_array
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables.points import SHOWN_TABLES
from tbservice.series.tables.superseded_points import SUPERSEDED_TABLES
from tbservice.series.tables.value_scan import DATA_CLASSES, Ends, ValueRow, stream_by_bytes
from tbservice.types.identifiers import ExperimentId, Int64s
from tbservice.types.sampling import StepRange
from tbwire.points import DataClass

Before = Mapping[int, float]
"""Wall time (seconds since the epoch), by series id, before which points are read."""


def _union(data_class: DataClass, columns: str, condition: str) -> str:
    return " UNION ALL ".join(
        f"""
            SELECT {columns} FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                AND wall_time < w.before AND {condition}
        """  # noqa: S608 - constants of ours
        for table in (SHOWN_TABLES[data_class], SUPERSEDED_TABLES[data_class])
    )


_WANTED: Final = """
    unnest(%(series_ids)s::bigint[], %(befores)s::float8[])
        WITH ORDINALITY AS w (series_id, before, ordinal)
"""


def _parameters(experiment_id: ExperimentId, before: Before) -> dict[str, Any]:
    return {
        "experiment_id": experiment_id,
        "series_ids": list(before),
        "befores": encode_array("float8", list(before.values())),
    }


def list_steps(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    before: Before,
    steps: StepRange,
) -> dict[int, Int64s]:
    """Return the steps of each series in a range, ascending; an empty array without any."""
    points = _union(data_class, "step", "step BETWEEN %(first)s AND %(last)s")
    rows = fetch_binary(
        db,
        f"""
            SELECT w.series_id, string_agg(int8send(p.step), ''::bytea ORDER BY p.step)
            FROM {_WANTED}
            CROSS JOIN LATERAL (SELECT DISTINCT step FROM ({points}) AS u) AS p
            GROUP BY w.series_id
        """,  # noqa: S608 - constants of ours
        {**_parameters(experiment_id, before), "first": steps.first, "last": steps.last},
    )
    empty = decode_int8s(b"")
    return dict.fromkeys(before, empty) | {id_: decode_int8s(data) for id_, data in rows}


def stream(
    db: Connection,
    row_type: type[ValueRow],
    experiment_id: ExperimentId,
    before: Before,
    steps: StepRange,
) -> Generator[ValueRow, None, None]:
    """Stream the points in a range of steps, by series in the order of `before`, then by step."""
    columns = ", ".join(row_type._fields)
    points = _union(DATA_CLASSES[row_type], columns, "step BETWEEN %(first)s AND %(last)s")
    statement = f"""
        SELECT p.* FROM {_WANTED}
        CROSS JOIN LATERAL (
            SELECT DISTINCT ON (step) {columns} FROM ({points}) AS u
            ORDER BY step, wall_time DESC OFFSET 0  -- a sub-query: see value_scan
        ) AS p
        ORDER BY w.ordinal
    """  # noqa: S608 - constants of ours
    parameters = {
        **_parameters(experiment_id, before),
        "first": steps.first,
        "last": steps.last,
    }
    return stream_by_bytes(db, row_type, statement, parameters)


def sample(
    db: Connection,
    row_type: type[ValueRow],
    experiment_id: ExperimentId,
    before: Before,
    ends: Ends,
) -> Generator[ValueRow, None, None]:
    """Stream the points at these positions of the sample order, by series id."""
    flat = [(id_, rank, key) for id_, keys in ends.items() for rank, key in keys]
    columns = ", ".join(row_type._fields)
    condition = "rank = w.rank AND sample_key = w.sample_key"
    points = _union(DATA_CLASSES[row_type], columns, condition)
    statement = f"""
        SELECT p.*
        FROM unnest(%(series_ids)s::bigint[], %(befores)s::float8[], %(ranks)s::smallint[],
            %(keys)s::bigint[]) AS w (series_id, before, rank, sample_key)
        CROSS JOIN LATERAL (
            SELECT {columns} FROM ({points}) AS u ORDER BY wall_time DESC LIMIT 1
        ) AS p
    """  # noqa: S608 - constants of ours
    parameters = {
        "experiment_id": experiment_id,
        "series_ids": [id_ for id_, _, _ in flat],
        "befores": encode_array("float8", [before[id_] for id_, _, _ in flat]),
        "ranks": [rank for _, rank, _ in flat],
        "keys": [key for _, _, key in flat],
    }
    return stream_by_bytes(db, row_type, statement, parameters)
