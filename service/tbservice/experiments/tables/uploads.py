"""Queries on `uploads`: what uploaders have recorded of themselves and of the training."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, text

from tbservice import limits
from tbservice.db.arrays import encode_array
from tbservice.db.pipeline import EXPERIMENTS, fetch_of_experiments
from tbservice.experiment_values import NewUpload, StatusOf, UploadEnd, UploadRecord, UploadStatus
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

_SILENT_SINCE: Final = f"now() - make_interval(secs => {limits.UPLOAD_SILENT_SECONDS_MAX})"
_STATUS: Final = f"""CASE WHEN status = 'running' AND seen_at < {_SILENT_SINCE}
    THEN 'silent' ELSE status END"""
_FIRST: Final = "status = 'running' DESC, seen_at DESC, upload_id"
"""The order of an experiment's uploads whose first one has the experiment's status."""

_HAS_STATUS: Final = {
    UploadStatus.RUNNING: f"status = 'running' AND seen_at >= {_SILENT_SINCE}",
    UploadStatus.SILENT: f"status = 'running' AND seen_at < {_SILENT_SINCE}",
}
_COLUMNS: Final = f"""upload_id, origin - 'console_times' AS origin,
    origin ->> 'console_times' AS console_times, packages, {_STATUS} AS status,
    status_of, detail, started_at, ended_at, created_at, seen_at"""


def select_experiments(statuses: Collection[UploadStatus]) -> str:
    """Return a query for the experiments with an upload that has one of these statuses.

    Each may be there several times. Its parameter is `workspace_id`.
    """
    return " UNION ALL ".join(
        f"SELECT experiment_id FROM uploads WHERE workspace_id = :workspace_id AND {condition}"  # noqa: S608 - constants
        for status in statuses
        for condition in (_HAS_STATUS.get(status, f"status = '{status.value}'"),)
    )


def count_rows(
    db: Connection,
    workspace_id: WorkspaceId,
    statuses: Collection[UploadStatus],
    count_max: int,
) -> int:
    """Count the rows of `select_experiments`, up to `count_max`."""
    statement = text(f"""
        SELECT count(*) FROM ({select_experiments(statuses)} LIMIT :count_max) AS matches
    """)  # noqa: S608 - constants
    parameters = {"workspace_id": workspace_id, "count_max": count_max}
    count: int = db.execute(statement, parameters).scalar_one()
    return count


def select_status(experiment_id: str) -> str:
    """Return a scalar query for the status of the experiment that this SQL names, as shown."""
    return f"""(
        SELECT (array_agg(status ORDER BY {_FIRST}))[1] FROM (
            SELECT {_STATUS} AS status, seen_at, upload_id FROM uploads
            WHERE experiment_id = {experiment_id}) AS u
    )"""  # noqa: S608 - constants


def put(db: Connection, grant: AppendGrant, upload_id: str, new: NewUpload) -> None:
    """Insert an upload, which is running, or replace all that it has recorded.

    The caller has locked the experiment's row, or accepts NotFound of a deleted one as
    IntegrityError.
    """
    db.execute(
        text("""
            INSERT INTO uploads (experiment_id, upload_id, workspace_id, origin, packages, status,
                status_of, detail, started_at)
            VALUES (:experiment_id, :upload_id, :workspace_id, CAST(:origin AS jsonb),
                CAST(:packages AS text[]), 'running', :status_of, '', :started_at)
            ON CONFLICT (experiment_id, upload_id) DO UPDATE SET
                origin = excluded.origin, packages = excluded.packages, status = excluded.status,
                status_of = excluded.status_of, detail = excluded.detail,
                started_at = excluded.started_at, ended_at = NULL, seen_at = excluded.seen_at
        """),
        {
            "experiment_id": grant.experiment_id,
            "upload_id": upload_id,
            "workspace_id": grant.workspace_id,
            "origin": json.dumps(dict(new.origin)),
            "packages": encode_array("text", new.packages),
            "status_of": new.status_of.value,
            "started_at": new.started_at,
        },
    )


def delete_oldest(db: Connection, experiment_id: ExperimentId, kept: int) -> None:
    """Delete all uploads of an experiment but the newest."""
    statement = text("""
        DELETE FROM uploads WHERE experiment_id = :experiment_id AND upload_id IN (
            SELECT upload_id FROM uploads WHERE experiment_id = :experiment_id
            ORDER BY created_at DESC, upload_id DESC OFFSET :kept)
    """)
    db.execute(statement, {"experiment_id": experiment_id, "kept": kept})


def delete_all(db: Connection, experiment_id: ExperimentId) -> None:
    """Delete all uploads of an experiment."""
    statement = text("DELETE FROM uploads WHERE experiment_id = :experiment_id")
    db.execute(statement, {"experiment_id": experiment_id})


def touch(db: Connection, experiment_id: ExperimentId, upload_id: str) -> bool:
    """Note that the uploader has just been heard of; return False if there is no such upload."""
    statement = text("""
        UPDATE uploads SET seen_at = now()
        WHERE experiment_id = :experiment_id AND upload_id = :upload_id
    """)
    parameters = {"experiment_id": experiment_id, "upload_id": upload_id}
    return db.execute(statement, parameters).rowcount == 1


def add_to_origin(
    db: Connection, experiment_id: ExperimentId, upload_id: str, texts: Mapping[str, str]
) -> None:
    """Add texts to the origin of an upload, or replace them; a no-op if there is no such upload."""
    statement = text("""
        UPDATE uploads SET origin = origin || CAST(:texts AS jsonb)
        WHERE experiment_id = :experiment_id AND upload_id = :upload_id
    """)
    parameters = {
        "experiment_id": experiment_id,
        "upload_id": upload_id,
        "texts": json.dumps(dict(texts)),
    }
    db.execute(statement, parameters)


def set_status(db: Connection, experiment_id: ExperimentId, upload_id: str, end: UploadEnd) -> bool:
    """Set status, detail and end; return False if there is no such upload."""
    statement = text("""
        UPDATE uploads SET seen_at = now(), status = :status, detail = :detail,
            ended_at = :ended_at
        WHERE experiment_id = :experiment_id AND upload_id = :upload_id
    """)
    parameters = {
        "experiment_id": experiment_id,
        "upload_id": upload_id,
        "status": end.status.value,
        "detail": end.detail,
        "ended_at": end.ended_at,
    }
    return db.execute(statement, parameters).rowcount == 1


def list_page(
    db: Connection,
    experiment_id: ExperimentId,
    before: tuple[datetime, str] | None,
    limit: int,
    only: str | None = None,
) -> list[UploadRecord]:
    """Return one page of an experiment's uploads, newest first.

    Args:
        db: A transaction of the workspace.
        experiment_id: The experiment.
        before: (created_at, id) of the previous page's last upload; None for the first page.
        limit: Uploads at most.
        only: The id of the one upload to return.
    """
    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM uploads WHERE experiment_id = :experiment_id
                AND (CAST(:only AS text) IS NULL OR upload_id = :only)
                AND (CAST(:created_at AS timestamptz) IS NULL
                    OR (created_at, upload_id) < (:created_at, :upload_id))
            ORDER BY created_at DESC, upload_id DESC LIMIT :limit
        """),  # noqa: S608 - a constant above
        {
            "experiment_id": experiment_id,
            "created_at": None if before is None else before[0],
            "upload_id": "" if before is None else before[1],
            "limit": limit,
            "only": only,
        },
    )
    return [
        UploadRecord(
            **{
                **row._mapping,
                "status": UploadStatus(row.status),
                "status_of": StatusOf(row.status_of),
            }
        )
        for row in rows
    ]


def find_statuses(
    db: Connection, experiment_ids: Sequence[ExperimentId]
) -> dict[ExperimentId, UploadStatus]:
    """Return the status of each experiment with uploads: running if one is.

    Otherwise it is that of the upload whose uploader was heard of last.
    """
    rows = fetch_of_experiments(
        db,
        f"""
            SELECT w.experiment_id, u.status FROM {EXPERIMENTS} AS w (experiment_id)
            CROSS JOIN LATERAL (
                SELECT status FROM (
                    SELECT {_STATUS} AS status, seen_at, upload_id FROM uploads
                    WHERE experiment_id = w.experiment_id) AS u
                ORDER BY {_FIRST} LIMIT 1
            ) AS u
        """,  # noqa: S608 - constants
        experiment_ids,
        {},
    )
    return {ExperimentId(experiment_id): UploadStatus(status) for experiment_id, status in rows}
