"""Queries that read all that an experiment has, in pages, to prove that it is consistent.

Every function needs a snapshot of the experiment's workspace, since one page follows another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, text

from tbservice.db.cluster.citus import Forms
from tbservice.db.database import set_local
from tbservice.db.pipeline import fetch_binary
from tbservice.series.tables.points import POINT_TABLES
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_BLOCKS_PER_PAGE: Final = 64
"""Blocks of one page: at most 12 MiB."""

_POINTS_PER_PAGE: Final = 5_000

_PARENTS: Final = {
    "a series without its run": """
        SELECT count(*) FROM time_series AS c WHERE experiment_id = :id AND NOT EXISTS (
            SELECT FROM runs AS p WHERE p.experiment_id = :id AND p.run_id = c.run_id)""",
    "a series without its tag": """
        SELECT count(*) FROM time_series AS c WHERE experiment_id = :id AND NOT EXISTS (
            SELECT FROM tags AS p WHERE p.experiment_id = :id AND p.tag_id = c.tag_id)""",
    "an upload cursor without its run": """
        SELECT count(*) FROM upload_streams AS c WHERE experiment_id = :id AND NOT EXISTS (
            SELECT FROM runs AS p WHERE p.experiment_id = :id AND p.run_id = c.run_id)""",
    "a trial without its run": """
        SELECT count(*) FROM katib_trials AS c WHERE experiment_id = :id AND run_id IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM runs AS p WHERE p.experiment_id = :id AND p.run_id = c.run_id)""",
}
"""Rows of an experiment whose parent does not exist, by what they are."""

_MORE_PARENTS: Final = Forms[dict[str, str]](
    plain={},
    cluster={
        "an experiment without its row in experiment_counters": """
            SELECT 1 - count(*) FROM experiment_counters WHERE experiment_id = :id""",
    },
)
"""More missing rows, in a cluster only: without them, batches would be refused."""


class StoredExperiment(NamedTuple):
    """An experiment, also a deleted one that can be restored, and copies of frozen links."""

    experiment_id: ExperimentId
    is_erased: bool
    """Whether it is being erased now: its rows disappear one after the other."""


@dataclass(frozen=True, slots=True)
class SeriesCounters:
    """Counters of points in the row of a series."""

    series_id: int
    data_class: int
    count: int
    count_is_exact: bool
    sealed_count: int
    tail_rows: int
    first_step: int
    last_step: int
    tail_end: bytes


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block, or a row of the write buffer. First and last step are None for the latter."""

    series_id: int
    level: int
    block_id: int
    count: int
    first_step: int | None
    last_step: int | None
    is_packed: bool
    data: bytes


class StoredPoint(NamedTuple):
    """A tensor or blob sequence point without its value; a tensor has the last five."""

    series_id: int
    rank: int
    sample_key: int
    period_start: float
    step: int
    wall_time: float
    dtype: int = 0
    shape: tuple[int, ...] = ()
    size: int | None = None
    object_sha256: bytes | None = None
    object_size: int | None = None


def list_experiments(db: Connection, workspace_id: WorkspaceId) -> list[StoredExperiment]:
    """Return the experiments of a workspace, deleted ones too."""
    set_local(db, "shows_deleted", "on")
    statement = text("""
        SELECT experiment_id, coalesce(erase_at < now(), false) FROM experiments
        WHERE workspace_id = :workspace_id
    """)
    rows = db.execute(statement, {"workspace_id": workspace_id})
    return [StoredExperiment(ExperimentId(row[0]), row[1]) for row in rows]


def has_experiment(db: Connection, experiment_id: ExperimentId) -> bool:
    """Return whether an experiment exists and is not being erased."""
    set_local(db, "shows_deleted", "on")
    statement = text("""
        SELECT FROM experiments WHERE experiment_id = :id
            AND (erase_at IS NULL OR erase_at >= now())
    """)
    return db.execute(statement, {"id": experiment_id}).one_or_none() is not None


def count_orphans(db: Connection, experiment_id: ExperimentId) -> dict[str, int]:
    """Return how many rows, or series with points, have no parent, by what they are."""
    counts = {
        what: int(db.execute(text(statement), {"id": experiment_id}).scalar_one())
        for what, statement in (_PARENTS | _MORE_PARENTS.of(db)).items()
    }
    for table in POINT_TABLES:
        statement = text(f"""
            WITH RECURSIVE {_distinct(table, "series_id")}
            SELECT count(*) FROM ids WHERE id IS NOT NULL
                AND id NOT IN (SELECT series_id FROM time_series WHERE experiment_id = :id)
                AND id NOT IN (SELECT series_id FROM erased_series WHERE experiment_id = :id)
        """)  # noqa: S608 - a constant above
        counts[f"points in {table} without their series"] = int(
            db.execute(statement, {"id": experiment_id}).scalar_one()
        )
    logs = text(f"""
        WITH RECURSIVE {_distinct("katib_observations", "run_id")}
        SELECT count(*) FROM ids WHERE id IS NOT NULL
            AND id NOT IN (SELECT run_id FROM runs WHERE experiment_id = :id)
    """)  # noqa: S608 - a constant
    counts["logs of a trial without their run"] = int(
        db.execute(logs, {"id": experiment_id}).scalar_one()
    )
    return {what: count for what, count in counts.items() if count}


def _distinct(table: str, column: str) -> str:
    """Return the query `ids` of a column's distinct values: one look into the index for each."""
    return f"""ids (id) AS (
            (SELECT {column} FROM {table} WHERE experiment_id = :id ORDER BY {column} LIMIT 1)
            UNION ALL
            SELECT (SELECT {column} FROM {table} AS t
                    WHERE t.experiment_id = :id AND t.{column} > ids.id
                    ORDER BY {column} LIMIT 1)
            FROM ids WHERE ids.id IS NOT NULL)"""  # noqa: S608 - constants of the callers


def list_series(
    db: Connection, experiment_id: ExperimentId, after: int, limit: int
) -> list[SeriesCounters]:
    """Return a page of the series with greater ids than `after`, by id."""
    rows = fetch_binary(
        db,
        """
            SELECT series_id, data_class, count, count_is_exact, sealed_count, tail_rows,
                first_step, last_step, tail_end
            FROM time_series WHERE experiment_id = %(id)s AND series_id > %(after)s
            ORDER BY series_id LIMIT %(limit)s
        """,
        {"id": experiment_id, "after": after, "limit": limit},
    )
    return [SeriesCounters(*row) for row in rows]


_BLOCK_QUERIES: Final = {
    "scalar_blocks": """
        SELECT series_id, level, block_id, count, first_step, last_step, true, data
        FROM scalar_blocks
        WHERE experiment_id = %(id)s AND series_id <= %(last)s
            AND (series_id, level, block_id)
                > (%(series_id)s, %(level)s::smallint, %(block_id)s)
        ORDER BY series_id, level, block_id LIMIT %(limit)s
    """,
    "scalar_tail": """
        SELECT series_id, 0::smallint, block_id, count, NULL::bigint, NULL::bigint, is_packed, data
        FROM scalar_tail
        WHERE experiment_id = %(id)s AND series_id <= %(last)s
            AND (series_id, block_id) > (%(series_id)s, %(block_id)s)
            AND %(level)s::smallint IS NOT NULL
        ORDER BY series_id, block_id LIMIT %(limit)s
    """,
    "superseded_blocks": """
        SELECT series_id, 0::smallint, block_id, count, first_step, last_step, true, data
        FROM superseded_blocks
        WHERE experiment_id = %(id)s AND series_id <= %(last)s
            AND (series_id, block_id) > (%(series_id)s, %(block_id)s)
            AND %(level)s::smallint IS NOT NULL
        ORDER BY series_id, block_id LIMIT %(limit)s
    """,
}


def iter_blocks(
    db: Connection, experiment_id: ExperimentId, table: str, first: int, last: int
) -> Iterator[StoredBlock]:
    """Yield the rows of the series from `first` to `last` in one of three tables of scalars."""
    series_id, level, block_id = first - 1, 2**15 - 1, 2**63 - 1
    while True:
        rows = fetch_binary(
            db,
            _BLOCK_QUERIES[table],
            {
                "id": experiment_id,
                "last": last,
                "series_id": series_id,
                "level": level,
                "block_id": block_id,
                "limit": _BLOCKS_PER_PAGE,
            },
        )
        for row in rows:
            yield StoredBlock(*row)
        if len(rows) < _BLOCKS_PER_PAGE:
            return
        series_id, level, block_id = rows[-1][:3]


def iter_point_pages(
    db: Connection, experiment_id: ExperimentId, table: str
) -> Iterator[list[StoredPoint]]:
    """Yield the points of a table with one row per point, in the order of its key, in pages."""
    period = "period_start" if table.startswith("superseded") else "0::float8"
    tensor = ", dtype, shape, octet_length(data), object_sha256, object_size"
    columns = tensor if "tensor" in table else ""
    statement = f"""
        SELECT series_id, rank, sample_key, {period}, step, wall_time{columns}
        FROM {table}
        WHERE experiment_id = %(id)s
            AND (series_id, rank, sample_key, {period})
                > (%(series_id)s, %(rank)s::smallint, %(sample_key)s, %(period)s::float8)
        ORDER BY series_id, rank, sample_key, {period} LIMIT %(limit)s
    """  # noqa: S608 - constants of the callers
    after = (-1, 0, 0, float("-inf"))
    while True:
        names = ("series_id", "rank", "sample_key", "period")
        parameters = dict(zip(names, after, strict=True))
        rows = fetch_binary(
            db, statement, {"id": experiment_id, "limit": _POINTS_PER_PAGE, **parameters}
        )
        if rows:
            yield [StoredPoint(*row) for row in rows]
        if len(rows) < _POINTS_PER_PAGE:
            return
        after = rows[-1][:4]


def read_tensors(
    db: Connection, experiment_id: ExperimentId, table: str, first: StoredPoint, last: StoredPoint
) -> list[bytes | None]:
    """Return the bytes of the tensors from one key to another, in the order of their keys."""
    period = "period_start" if table.startswith("superseded") else "0::float8"
    statement = f"""
        SELECT data FROM {table}
        WHERE experiment_id = %(id)s
            AND (series_id, rank, sample_key, {period})
                >= (%(s1)s, %(r1)s::smallint, %(k1)s, %(p1)s::float8)
            AND (series_id, rank, sample_key, {period})
                <= (%(s2)s, %(r2)s::smallint, %(k2)s, %(p2)s::float8)
        ORDER BY series_id, rank, sample_key, {period}
    """  # noqa: S608 - constants of the callers
    parameters = dict(zip(("s1", "r1", "k1", "p1"), first[:4], strict=True))
    parameters |= dict(zip(("s2", "r2", "k2", "p2"), last[:4], strict=True))
    return [data for (data,) in fetch_binary(db, statement, {"id": experiment_id, **parameters})]
