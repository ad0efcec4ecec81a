"""Queries on `runs` and `tags`: names of any length, unique in an experiment by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, text

from tbservice.store.pg.arrays import encode_array
from tbservice.types import ExperimentGrant, ExperimentId, Run


def _resolve_statement(table: str, id_column: str, lock: str = "") -> str:
    return f"""
        WITH want AS MATERIALIZED (
            SELECT * FROM unnest(CAST(:names AS text[]), CAST(:digests AS bytea[]))
                WITH ORDINALITY AS w (name, digest, place)),
        have AS MATERIALIZED (
            SELECT found.* FROM want CROSS JOIN LATERAL (
                SELECT {id_column} AS id, name_digest FROM {table}
                WHERE experiment_id = :experiment_id AND name_digest = want.digest
                    LIMIT 1 {lock}) AS found),
        numbered AS MATERIALIZED (
            SELECT nextval('{table}_{id_column}_seq') AS id, name, digest FROM (
                SELECT name, digest FROM want WHERE digest NOT IN (SELECT name_digest FROM have)
                ORDER BY place) AS new),
        made AS (
            INSERT INTO {table} (experiment_id, workspace_id, {id_column}, name, name_digest)
            SELECT :experiment_id, :workspace_id, id, name, digest FROM numbered
            ORDER BY digest  -- two who make the same names never wait for each other in a circle
            ON CONFLICT DO NOTHING
            RETURNING {id_column} AS id, name_digest)
        SELECT id, name_digest FROM have UNION ALL SELECT id, name_digest FROM made
    """  # noqa: S608 - called with the constants below


_RESOLVE_RUNS: Final = _resolve_statement("runs", "run_id", "FOR KEY SHARE")
_RESOLVE_TAGS: Final = _resolve_statement("tags", "tag_id")


def hash_name(name: str) -> bytes:
    """What makes a name unique: an index row ends at 2,704 bytes, a name need not."""
    return hashlib.sha256(name.encode()).digest()


def resolve_runs(db: Connection, grant: ExperimentGrant, names: Collection[str]) -> dict[str, int]:
    """The id of each run, made where it is new: ids grow in the order of the names.

    None of them can be deleted until the transaction ends.
    """
    return _resolve(db, grant, _RESOLVE_RUNS, names)


def resolve_tags(db: Connection, grant: ExperimentGrant, names: Collection[str]) -> dict[str, int]:
    """Return the id of each tag, made where it is new: ids grow in the order of the names.

    An id is good for this transaction alone. No process may keep it for the next one: after a failover to a standby
    that lagged behind, or a restore, the id is no tag's, or another tag's.
    """
    return _resolve(db, grant, _RESOLVE_TAGS, names)


def _resolve(
    db: Connection, grant: ExperimentGrant, statement: str, names: Collection[str]
) -> dict[str, int]:
    by_digest = {hash_name(name): name for name in names}
    parameters = {
        "experiment_id": grant.experiment_id,
        "workspace_id": grant.workspace_id,
        "names": encode_array("text", list(by_digest.values())),
        "digests": encode_array("bytea", list(by_digest)),
    }
    while True:
        rows = db.execute(text(statement), parameters).all()
        if len(rows) == len(by_digest):
            return {by_digest[bytes(name_digest)]: number for number, name_digest in rows}
        # Another transaction made one of them meanwhile and has committed: the next statement sees it.


def set_start_times(
    db: Connection, experiment_id: ExperimentId, run_ids: Sequence[int], times: Sequence[float]
) -> None:
    """Moves each run's start time back to the given wall time (seconds) where that is earlier."""
    db.execute(
        text("""
            WITH earlier AS MATERIALIZED (
                SELECT runs.run_id, u.start_time
                FROM unnest(CAST(:run_ids AS bigint[]), CAST(:times AS float8[])) AS u (run_id,
                    start_time)
                JOIN runs ON runs.experiment_id = :experiment_id AND runs.run_id = u.run_id
                WHERE runs.run_id = ANY (CAST(:run_ids AS bigint[]))
                    AND (runs.start_time IS NULL OR runs.start_time > u.start_time)
                ORDER BY runs.run_id FOR NO KEY UPDATE OF runs)
            UPDATE runs SET start_time = earlier.start_time FROM earlier
            WHERE runs.experiment_id = :experiment_id AND runs.run_id = earlier.run_id
        """),
        {
            "experiment_id": experiment_id,
            "run_ids": encode_array("bigint", run_ids),
            "times": encode_array("float8", times),
        },
    )


def list_runs(db: Connection, experiment_id: ExperimentId) -> list[Run]:
    """Every run, in the order in which they came: that order only ever grows at its end."""
    statement = text(
        "SELECT name, start_time FROM runs WHERE experiment_id = :experiment_id ORDER BY run_id"
    )
    return [
        Run(row.name, row.start_time)
        for row in db.execute(statement, {"experiment_id": experiment_id})
    ]


def list_run_names(
    db: Connection, experiment_id: ExperimentId, names: Collection[str] | None = None
) -> dict[int, str]:
    """The name of each run by its id, in the order in which they came; of the chosen ones alone, unless None."""
    return _list_names(db, "runs", "run_id", experiment_id, names)


def list_tag_names(
    db: Connection, experiment_id: ExperimentId, names: Collection[str] | None = None
) -> dict[int, str]:
    """The name of each tag by its id, in the order in which they came; of the chosen ones alone, unless None."""
    return _list_names(db, "tags", "tag_id", experiment_id, names)


def _list_names(
    db: Connection,
    table: str,
    id_column: str,
    experiment_id: ExperimentId,
    names: Collection[str] | None,
) -> dict[int, str]:
    condition = "" if names is None else "AND name_digest = ANY (CAST(:digests AS bytea[]))"
    statement = text(
        f"SELECT {id_column}, name FROM {table} WHERE experiment_id = :experiment_id {condition} ORDER BY {id_column}"  # noqa: S608 - called with the constants above
    )
    digests = (
        {}
        if names is None
        else {"digests": encode_array("bytea", [hash_name(name) for name in names])}
    )
    rows = db.execute(statement, {"experiment_id": experiment_id, **digests})
    return {row[0]: row[1] for row in rows}


def lock_run(db: Connection, experiment_id: ExperimentId, name: str) -> int | None:
    """A run's id, when no ingest writes to the run any more; none does until the transaction ends."""
    return _find_id(db, "runs", "run_id", experiment_id, name, "FOR UPDATE")


def find_tag(db: Connection, experiment_id: ExperimentId, name: str) -> int | None:
    """A tag's id."""
    return _find_id(db, "tags", "tag_id", experiment_id, name)


def _find_id(
    db: Connection,
    table: str,
    id_column: str,
    experiment_id: ExperimentId,
    name: str,
    lock: str = "",
) -> int | None:
    statement = text(
        f"SELECT {id_column} FROM {table} WHERE experiment_id = :experiment_id AND name_digest = :digest {lock}"  # noqa: S608 - called with the constants above
    )
    found: int | None = db.execute(
        statement, {"experiment_id": experiment_id, "digest": hash_name(name)}
    ).scalar()
    return found


def delete_run(db: Connection, experiment_id: ExperimentId, run_id: int) -> None:
    """Deletes a run's row; its series, points and streams are deleted by whoever calls this."""
    statement = text("DELETE FROM runs WHERE experiment_id = :experiment_id AND run_id = :run_id")
    db.execute(statement, {"experiment_id": experiment_id, "run_id": run_id})
