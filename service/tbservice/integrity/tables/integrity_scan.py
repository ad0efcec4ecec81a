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
    "a series without its run": ("time_series", "runs", "run_id"),
    "a series without its tag": ("time_series", "tags", "tag_id"),
    "an upload cursor without its run": ("upload_streams", "runs", "run_id"),
    "a trial without its run": ("katib_trials", "runs", "run_id"),
}
"""Tables of an experiment's rows whose parent may be missing, by what they are: see `_orphans`."""

_MORE_PARENTS: Final = Forms[dict[str, str]](
    plain={},
    cluster={
        "an experiment without its row in experiment_counters": """
            SELECT 1 - count(*) FROM experiment_counters WHERE experiment_id = :id""",
    },
)
"""Counts of more missing rows, in a cluster only: without them, batches would be refused."""


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
    statements = {what: _orphans(*tables) for what, tables in _PARENTS.items()}
    statements |= _MORE_PARENTS.of(db)
    for table in POINT_TABLES:
        statements[f"points in {table} without their series"] = f"""
            WITH RECURSIVE {_distinct(table, "series_id")}
            SELECT count(*) FROM ids WHERE id IS NOT NULL
                AND id NOT IN (SELECT series_id FROM time_series WHERE experiment_id = :id)
                AND id NOT IN (SELECT series_id FROM erased_series WHERE experiment_id = :id)
        """  # noqa: S608 - a constant above
    statements["logs of a trial without their run"] = f"""
        WITH RECURSIVE {_distinct("katib_observations", "run_id")}
        SELECT count(*) FROM ids WHERE id IS NOT NULL
            AND id NOT IN (SELECT run_id FROM runs WHERE experiment_id = :id)
    """  # noqa: S608 - a constant
    counts = {
        what: int(db.execute(text(statement), {"id": experiment_id}).scalar_one())
        for what, statement in statements.items()
    }
    return {what: count for what, count in counts.items() if count}


def _orphans(table: str, parents: str, column: str) -> str:
    """Return the query of how many rows have no parent, which has the same value in a column."""
    return f"""
        SELECT count(*) FROM {table} AS c WHERE experiment_id = :id AND {column} IS NOT NULL
            AND NOT EXISTS (
                SELECT FROM {parents} AS p WHERE p.experiment_id = :id AND p.{column} = c.{column})
    """  # noqa: S608 - constants above


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


_LEVEL_AND_RANGE: Final = {
    "scalar_blocks": ("level", "first_step, last_step, true"),
    "scalar_tail": ("0::smallint", "NULL::bigint, NULL::bigint, is_packed"),
    "superseded_blocks": ("0::smallint", "first_step, last_step, true"),
}
"""Columns of the tables of scalars; the key of the first alone has the level."""


def iter_blocks(
    db: Connection, experiment_id: ExperimentId, table: str, first: int, last: int
) -> Iterator[StoredBlock]:
    """Yield the rows of the series from `first` to `last` in one of three tables of scalars."""
    level, covered = _LEVEL_AND_RANGE[table]
    in_key, after_level = (", level", ", %(level)s::smallint") if level == "level" else ("", "")
    statement = f"""
        SELECT series_id, {level}, block_id, count, {covered}, data FROM {table}
        WHERE experiment_id = %(id)s AND series_id <= %(last)s
            AND (series_id{in_key}, block_id) > (%(series_id)s{after_level}, %(block_id)s)
        ORDER BY series_id{in_key}, block_id LIMIT %(limit)s
    """  # noqa: S608 - constants above
    common = {"id": experiment_id, "last": last, "limit": _BLOCKS_PER_PAGE}
    after = first - 1, 2**15 - 1, 2**63 - 1
    while True:
        key = dict(zip(("series_id", "level", "block_id"), after, strict=True))
        rows = fetch_binary(db, statement, common | key)
        for row in rows:
            yield StoredBlock(*row)
        if len(rows) < _BLOCKS_PER_PAGE:
            return
        after = rows[-1][:3]


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
