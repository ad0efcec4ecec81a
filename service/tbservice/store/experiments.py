"""Queries on `experiments`: create, list, update, delete, and the version of the data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.store.pg.arrays import encode_array
from tbservice.store.pg.pipeline import PendingResult, execute_binary
from tbservice.types import Experiment, ExperimentId, Visibility, WorkspaceId

_COLUMNS: Final = "experiment_id, name, description, visibility, created_at, updated_at, version"


def create(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    name: str,
    description: str,
    visibility: Visibility,
    request_key: str | None,
) -> Experiment:
    """Create an experiment, or return the one that was created with the same request key.

    An advisory lock makes concurrent requests with one key wait for each other.
    """
    lock = "SELECT pg_advisory_xact_lock(hashtextextended(:workspace_id || '/' || :request_key, 0))"
    db.execute(
        text(lock),
        {"workspace_id": str(workspace_id), "request_key": request_key or experiment_id},
    )

    existing = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM experiments
            WHERE workspace_id = :workspace_id AND request_key = :request_key
        """),  # noqa: S608 - a constant above
        {"workspace_id": workspace_id, "request_key": request_key},
    ).one_or_none()
    if existing is not None:
        return _experiment(existing)

    created = db.execute(
        text(f"""
            INSERT INTO experiments
                (experiment_id, workspace_id, name, description, visibility, request_key)
            VALUES (:experiment_id, :workspace_id, :name, :description, :visibility, :request_key)
            RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {
            "experiment_id": experiment_id,
            "workspace_id": workspace_id,
            "name": name,
            "description": description,
            "visibility": visibility.value,
            "request_key": request_key,
        },
    ).one()
    return _experiment(created)


def lock_name(
    db: Connection, workspace_id: WorkspaceId, name: str, limit: int
) -> list[Experiment]:
    """Return up to `limit` experiments with this name, oldest first, and lock the name.

    The advisory lock makes other calls with this name wait until the transaction ends. It does not
    stop creations and renamings that do not take it: names are not unique.
    """
    lock = "SELECT pg_advisory_xact_lock(hashtextextended(:workspace_id || '/name/' || :name, 0))"
    db.execute(text(lock), {"workspace_id": str(workspace_id), "name": name})

    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM experiments
            WHERE workspace_id = :workspace_id AND name = :name
            ORDER BY created_at, experiment_id LIMIT :limit
        """),  # noqa: S608 - a constant above
        {"workspace_id": workspace_id, "name": name, "limit": limit},
    )
    return [_experiment(row) for row in rows]


def find(db: Connection, experiment_id: ExperimentId) -> Experiment | None:
    """Return an experiment of the transaction's workspace; None if it does not exist."""
    statement = text(f"SELECT {_COLUMNS} FROM experiments WHERE experiment_id = :experiment_id")  # noqa: S608 - a constant above
    row = db.execute(statement, {"experiment_id": experiment_id}).one_or_none()
    return None if row is None else _experiment(row)


def find_by_request(
    db: Connection, workspace_id: WorkspaceId, request_key: str
) -> ExperimentId | None:
    """Return the experiment that was created with this request key; None if there is none."""
    statement = text("""
        SELECT experiment_id FROM experiments
        WHERE workspace_id = :workspace_id AND request_key = :request_key
    """)
    parameters = {"workspace_id": workspace_id, "request_key": request_key}
    experiment_id: ExperimentId | None = db.execute(statement, parameters).scalar()
    return experiment_id


def list_page(
    db: Connection,
    workspace_id: WorkspaceId,
    search_text: str,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[Experiment]:
    """Return one page of a workspace's experiments, newest first.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        search_text: Text that the name or description contains, ignoring case; "" for any.
        before: (created_at, id) of the previous page's last experiment; None for the first page.
        limit: Experiments at most.
    """
    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM experiments
            WHERE workspace_id = :workspace_id
                AND (:words = '' OR position(lower(:words) IN lower(name)) > 0
                    OR position(lower(:words) IN lower(description)) > 0)
                AND (CAST(:created_at AS timestamptz) IS NULL OR created_at < :created_at
                    OR (created_at = :created_at AND experiment_id > :experiment_id))
            ORDER BY created_at DESC, experiment_id LIMIT :limit
        """),  # noqa: S608 - a constant above
        {
            "workspace_id": workspace_id,
            "words": search_text,
            "created_at": before[0] if before else None,
            "experiment_id": before[1] if before else "",
            "limit": limit,
        },
    )
    return [_experiment(row) for row in rows]


def update(
    db: Connection,
    experiment_id: ExperimentId,
    name: str | None,
    description: str | None,
    visibility: Visibility | None,
) -> Experiment | None:
    """Change the fields that are not None; return None if the experiment does not exist."""
    row = db.execute(
        text(f"""
            UPDATE experiments SET updated_at = now(), name = coalesce(:name, name),
                description = coalesce(:description, description),
                visibility = coalesce(:visibility, visibility)
            WHERE experiment_id = :experiment_id RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {
            "experiment_id": experiment_id,
            "name": name,
            "description": description,
            "visibility": None if visibility is None else visibility.value,
        },
    ).one_or_none()
    return None if row is None else _experiment(row)


def list_versions(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, int]:
    """Return the version of each of the experiments that exists in the transaction's workspace."""
    statement = text("""
        SELECT experiment_id, version FROM experiments
        WHERE experiment_id = ANY (CAST(:ids AS text[]))
    """)
    rows = db.execute(statement, {"ids": encode_array("text", experiment_ids)})
    return {row.experiment_id: row.version for row in rows}


def bump_version(db: Connection, experiment_id: ExperimentId) -> PendingResult:
    """Increment the experiment's version, which locks its row until the transaction ends.

    Concurrent batches wait for that row: execute this last. The result has no row if the
    experiment was deleted: then the caller must roll back.
    """
    return execute_binary(
        db,
        """
            UPDATE experiments SET version = version + 1, updated_at = now()
            WHERE experiment_id = %(experiment_id)s RETURNING version
        """,
        {"experiment_id": experiment_id},
    )


def delete(db: Connection, experiment_id: ExperimentId) -> bool:
    """Delete an experiment and, by cascade, all but its points; return False if there was none."""
    statement = text("DELETE FROM experiments WHERE experiment_id = :experiment_id")
    return db.execute(statement, {"experiment_id": experiment_id}).rowcount == 1


def _experiment(row: Row[Any]) -> Experiment:
    return Experiment(**{**row._mapping, "visibility": Visibility(row.visibility)})
