"""Queries on frozen copies of experiments: rows are copied with their ids, blobs are shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary
from tbservice.types.identifiers import ExperimentId, WorkspaceId

EXPERIMENT_COLUMNS: Final = (
    "workspace_id, name, name_key, description, version, created_at, updated_at, data_at, "
    "created_by, tags, notes, properties, origin"
)

_COPIED: Final = EXPERIMENT_COLUMNS.replace(
    "description,", "replace(description, :card, :own_card),"
).replace("notes,", "replace(notes, :card, :own_card),")
"""Their values: cards of the source in its texts become the copy's, which its readers can open."""

SERIES_COLUMNS: Final = {
    "runs": "run_id, workspace_id, name, name_digest, start_time",
    "tags": "tag_id, workspace_id, name, name_digest",
    "time_series": (
        "series_id, workspace_id, run_id, tag_id, plugin, data_class, summary_metadata, "
        "metadata_wall_time, count, count_is_exact, sealed_count, tail_rows, tail_points, "
        "max_length, first_step, first_wall_time, first_value, last_step, last_wall_time, "
        "last_value, rewrites, rewritten_from, max_wall_time, tail_end"
    ),
}
POINT_COLUMNS: Final = {
    "scalar_tail": "series_id, block_id, workspace_id, count, is_packed, data",
    "scalar_blocks": (
        "series_id, level, block_id, workspace_id, count, first_step, last_step, data"
    ),
    "tensor_points": (
        "series_id, rank, sample_key, workspace_id, step, wall_time, dtype, shape, data, "
        "histogram, object_sha256, object_size"
    ),
    "blob_points": (
        "series_id, rank, sample_key, workspace_id, step, wall_time, digests, logged_content_type"
    ),
}
"""The columns that are copied of each table: all but `experiment_id`, which is the copy's."""


def create(
    db: Connection, source: ExperimentId, snapshot: ExperimentId, erase_at: datetime | None
) -> bool:
    """Insert a private experiment that is a copy of another's row; False if that is deleted.

    It is erased at `erase_at`; None for never.
    """
    statement = text(f"""
        INSERT INTO experiments
            (experiment_id, visibility, is_listed, erase_at, snapshot_of, {EXPERIMENT_COLUMNS})
        SELECT :snapshot, 'private', false, CAST(:erase_at AS timestamptz), experiment_id,
            {_COPIED}
        FROM experiments WHERE experiment_id = :source AND snapshot_of IS NULL
        ON CONFLICT DO NOTHING RETURNING workspace_id
    """)  # noqa: S608 - a constant above
    card, own_card = (f"/experiment/{each}/card." for each in (source, snapshot))
    parameters = {
        "source": source,
        "snapshot": snapshot,
        "erase_at": erase_at,
        "card": card,
        "own_card": own_card,
    }
    workspace_id = db.execute(statement, parameters).scalar()
    if workspace_id is not None:
        citus.begin_counter(db, WorkspaceId(workspace_id), snapshot)
    return workspace_id is not None


def copy_series(db: Connection, source: ExperimentId, snapshot: ExperimentId) -> None:
    """Copy the runs, tags and series that the transaction shows: see `link_views.show`."""
    for table, columns in SERIES_COLUMNS.items():
        statement = text(f"""
            INSERT INTO {table} (experiment_id, {columns})
            SELECT :snapshot, {columns} FROM link_views.{table} WHERE experiment_id = :source
            ON CONFLICT DO NOTHING  -- of none; but without, Citus begins with COPY
        """)  # noqa: S608 - constants above
        db.execute(statement, {"source": source, "snapshot": snapshot})


def list_counts(db: Connection, snapshot: ExperimentId) -> list[tuple[int, int, int]]:
    """Return (data class, series id, number of points) of each series, by data class and id."""
    return [
        (data_class, series_id, count)
        for data_class, series_id, count in fetch_binary(
            db,
            """
                SELECT data_class, series_id, count FROM time_series
                WHERE experiment_id = %(experiment_id)s ORDER BY data_class, series_id
            """,
            {"experiment_id": snapshot},
        )
    ]


def copy_points(
    db: Connection,
    table: str,
    source: ExperimentId,
    snapshot: ExperimentId,
    series_ids: Sequence[int],
) -> None:
    """Copy the rows of these series in one table of points, by one statement."""
    columns = POINT_COLUMNS[table]
    statement = text(f"""
        INSERT INTO {table} (experiment_id, {columns})
        SELECT :snapshot, {columns} FROM {table}
        WHERE experiment_id = :source AND series_id = ANY (CAST(:series_ids AS bigint[]))
        ON CONFLICT DO NOTHING
    """)  # noqa: S608 - constants above
    parameters = {
        "source": source,
        "snapshot": snapshot,
        "series_ids": encode_array("bigint", series_ids),
    }
    db.execute(statement, parameters)


def try_lock(db: Connection, source: ExperimentId) -> bool:
    """Keep others from copying the experiment until the transaction ends; False if one does."""
    return citus.try_lock_name(db, _lock(source), source)


def wait(db: Connection, source: ExperimentId) -> None:
    """Wait until a copy that is being made is committed, and keep others from making one."""
    citus.lock_name(db, _lock(source), source)


def choose_id(
    db: Connection, source: ExperimentId, generate: Callable[[], ExperimentId]
) -> ExperimentId:
    """Return the id of a new copy; in a cluster, of one on the node of its source and its lock."""
    return citus.choose_id(db, generate, source)


def _lock(source: ExperimentId) -> str:
    return f"copy {source}"


def count(db: Connection, source: ExperimentId) -> int:
    """Return how many copies an experiment has."""
    statement = text("SELECT count(*) FROM experiments WHERE snapshot_of = :source")
    return int(db.execute(statement, {"source": source}).scalar_one())


def keep(db: Connection, source: ExperimentId) -> int:
    """Make each copy of an experiment its own source, so that it outlasts it; return how many."""
    statement = text("UPDATE experiments SET snapshot_of = experiment_id WHERE snapshot_of = :id")
    return db.execute(statement, {"id": source}).rowcount


def count_kept(db: Connection, workspace_id: WorkspaceId) -> int:
    """Return how many copies of a workspace are their own source."""
    statement = text("""
        SELECT count(*) FROM experiments
        WHERE workspace_id = :id AND snapshot_of IS NOT NULL AND snapshot_of = experiment_id
    """)
    return int(db.execute(statement, {"id": workspace_id}).scalar_one())


def list_unused(db: Connection, source: ExperimentId, limit: int) -> list[ExperimentId]:
    """Return at most `limit` copies of an experiment that no valid link opens any more."""
    statement = text("""
        SELECT e.experiment_id FROM experiments AS e
        WHERE e.snapshot_of = :source AND NOT EXISTS (
            SELECT FROM tokens AS t
            WHERE t.experiment_id = e.experiment_id AND t.revoked_at IS NULL
                AND (t.expires_at IS NULL OR t.expires_at > now()))
        LIMIT :limit
    """)
    return list(db.execute(statement, {"source": source, "limit": limit}).scalars())
