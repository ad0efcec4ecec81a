"""Queries on `katib_trials`: which experiment and run a trial is, and what is known of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array, unnest_rows
from tbservice.db.cluster import citus
from tbservice.db.pipeline import execute_binary, fetch_binary
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_COLUMNS: Final[dict[str, str]] = {
    "run_id": "bigint",
    "is_bound": "boolean",
    "assignments": "bytea",
    "condition": "smallint",
    "is_inferred": "boolean",
    "request_digest": "bytea",
    "log_count": "bigint",
    "recent_reports": "bytea",
}
"""Columns that are read and written together, in the order of `TrialRow`."""

_SELECTED: Final = ", ".join(("name_digest", *_COLUMNS))


@dataclass(slots=True)
class TrialRow:
    """A trial: a row that this transaction has locked, or that it has only read.

    `run_id` is None for a trial that was only suggested. `condition` is None if nobody told it.
    """

    name_digest: bytes
    run_id: int | None
    is_bound: bool
    assignments: bytes
    condition: int | None
    is_inferred: bool
    request_digest: bytes | None
    log_count: int
    recent_reports: bytes


def find_place(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId | None,
    name_digest: bytes,
    request_key: str | None,
) -> ExperimentId | None:
    """Return the experiment of a trial; None if there is no such trial.

    If several trials have this name, it is the one in the experiment with the request key, else one
    of which a request named the experiment, else one that has a run, else the newest.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        experiment_id: The only experiment to look in; None for all.
        name_digest: SHA-256 of the trial's name.
        request_key: The idempotency key of the preferred experiment; None for no preference.
    """
    statement = text("""
        SELECT t.experiment_id FROM katib_trials AS t JOIN experiments AS e USING (experiment_id)
        WHERE t.workspace_id = :workspace_id AND t.name_digest = :name_digest
            AND (CAST(:experiment_id AS text) IS NULL OR t.experiment_id = :experiment_id)
        ORDER BY coalesce(e.request_key = :request_key, false) DESC, t.is_bound DESC,
            t.run_id IS NULL, t.created_at DESC, t.experiment_id LIMIT 1
    """)
    parameters = {
        "workspace_id": workspace_id,
        "experiment_id": experiment_id,
        "name_digest": name_digest,
        "request_key": request_key,
    }
    found: ExperimentId | None = db.execute(statement, parameters).scalar()
    return found


def list_trials(
    db: Connection, experiment_id: ExperimentId, name_digests: Collection[bytes]
) -> dict[bytes, TrialRow]:
    """Return the trials that exist, by the SHA-256 of their name, without locking them."""
    rows = fetch_binary(
        db,
        f"""
            SELECT {_SELECTED} FROM katib_trials WHERE experiment_id = %(experiment_id)s
                AND name_digest = ANY (%(name_digests)s::bytea[])
        """,  # noqa: S608 - the columns are the constant above
        {
            "experiment_id": experiment_id,
            "name_digests": encode_array("bytea", list(name_digests)),
        },
    )
    return {row[0]: TrialRow(*row) for row in rows}


def list_unbound(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    name_digests: Collection[bytes],
) -> list[tuple[bytes, ExperimentId]]:
    """Return which of the trials have logs in other experiments, that no request named.

    Each with the SHA-256 of its name, in the order of these.
    """
    return fetch_binary(
        db,
        """
            SELECT name_digest, experiment_id FROM katib_trials
            WHERE workspace_id = %(workspace_id)s
                AND name_digest = ANY (%(name_digests)s::bytea[])
                AND experiment_id <> %(experiment_id)s AND NOT is_bound AND run_id IS NOT NULL
            ORDER BY name_digest, experiment_id
        """,
        {
            "workspace_id": workspace_id,
            "experiment_id": experiment_id,
            "name_digests": encode_array("bytea", list(name_digests)),
        },
    )


def lock_or_create(
    db: Connection, grant: AppendGrant, run_ids: dict[bytes, int]
) -> dict[bytes, TrialRow]:
    """Return the trials by the SHA-256 of their name, locked until the transaction ends.

    Creates those that do not exist, and sets their runs. Rows are locked in the order of the
    digests, as by all transactions: so they cannot deadlock.
    """
    digests = sorted(run_ids)
    columns = {"name_digest": "bytea", "run_id": "bigint"}
    rows = fetch_binary(
        db,
        f"""
            INSERT INTO katib_trials
                (experiment_id, workspace_id, name_digest, run_id, is_bound, assignments)
            SELECT e.experiment_id, e.workspace_id, name_digest, run_id, false, ''
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(columns)} AS u
            ON CONFLICT (experiment_id, name_digest) DO UPDATE SET run_id = excluded.run_id
            RETURNING {_SELECTED}
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "name_digest": encode_array("bytea", digests),
            "run_id": encode_array("bigint", [run_ids[digest] for digest in digests]),
        },
    )
    return {row[0]: TrialRow(*row) for row in rows}


def update(db: Connection, grant: AppendGrant, trials: Sequence[TrialRow]) -> None:
    """Write all columns of trials that this transaction has locked."""
    columns = {"name_digest": "bytea", **_COLUMNS}
    execute_binary(
        db,
        f"""
            INSERT INTO katib_trials (experiment_id, workspace_id, {", ".join(columns)})
            SELECT e.experiment_id, e.workspace_id, {", ".join(columns)}
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(columns)} AS u
            ON CONFLICT (experiment_id, name_digest) DO UPDATE
                SET {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}
        """,  # noqa: S608 - the columns are the constants above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            **{
                name: encode_array(kind, [getattr(trial, name) for trial in trials])
                for name, kind in columns.items()
            },
        },
    )


def insert_suggested(
    db: Connection, grant: AppendGrant, assignments: dict[bytes, bytes], days_max: int
) -> None:
    """Insert trials that were suggested, with their serialized assignments by digest of the name.

    Existing trials are not changed. Trials of the experiment that were suggested more than
    `days_max` days ago, and never heard of since, are deleted.
    """
    columns = {"name_digest": "bytea", "assignments": "bytea"}
    digests = sorted(assignments)
    execute_binary(
        db,
        f"""
            INSERT INTO katib_trials
                (experiment_id, workspace_id, name_digest, is_bound, assignments)
            SELECT e.experiment_id, e.workspace_id, name_digest, true, assignments
            FROM {citus.insert_source(db)} AS e CROSS JOIN {unnest_rows(columns)} AS u
            ON CONFLICT (experiment_id, name_digest) DO NOTHING
        """,  # noqa: S608 - the columns are the constant above
        {
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "name_digest": encode_array("bytea", digests),
            "assignments": encode_array("bytea", [assignments[digest] for digest in digests]),
        },
    )
    statement = text("""
        DELETE FROM katib_trials WHERE experiment_id = :experiment_id AND run_id IS NULL
            AND created_at < now() - make_interval(days => CAST(:days_max AS integer))
    """)
    db.execute(statement, {"experiment_id": grant.experiment_id, "days_max": days_max})


def count(db: Connection, experiment_id: ExperimentId, limit: int) -> tuple[int, int]:
    """Return the trials of an experiment, and how many of Katib's experiments; at most `limit`."""
    trials, experiments = (
        f"(SELECT count(*) FROM (SELECT FROM {table} WHERE experiment_id = :id LIMIT :limit) AS t)"  # noqa: S608 - constants
        for table in ("katib_trials", "katib_experiments")
    )
    statement = text(f"SELECT {trials} AS trials, {experiments} AS experiments")
    row = db.execute(statement, {"id": experiment_id, "limit": limit}).one()
    return row.trials, row.experiments


def delete(db: Connection, experiment_id: ExperimentId, name_digest: bytes) -> None:
    """Delete a trial's row. The caller deletes its logs."""
    statement = text("""
        DELETE FROM katib_trials
        WHERE experiment_id = :experiment_id AND name_digest = :name_digest
    """)
    db.execute(statement, {"experiment_id": experiment_id, "name_digest": name_digest})
