"""Queries for the objects that points refer to, over all tables that refer to objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.cluster import citus
from tbservice.types.identifiers import ExperimentId
from tbwire.points import DataClass

REFERRING_CLASSES: Final = (DataClass.TENSOR, DataClass.BLOB_SEQUENCE)
"""The data classes whose points may refer to objects."""


def _make_references(condition: str) -> str:
    """Return the query of all references of an experiment's points that meet a condition."""
    # A further table that refers to objects is added here, with UNION ALL.
    return f"""
        SELECT p.series_id, p.step, d.sha256
        FROM blob_points AS p CROSS JOIN LATERAL unnest(p.digests) AS d (sha256)
        WHERE p.experiment_id = :experiment_id {condition}
        UNION ALL
        SELECT series_id, step, object_sha256 FROM tensor_points
        WHERE experiment_id = :experiment_id {condition} AND object_sha256 IS NOT NULL
        UNION ALL
        SELECT p.series_id, p.step, d.sha256
        FROM superseded_blobs AS p CROSS JOIN LATERAL unnest(p.digests) AS d (sha256)
        WHERE p.experiment_id = :experiment_id {condition}
        UNION ALL
        SELECT series_id, step, object_sha256 FROM superseded_tensors
        WHERE experiment_id = :experiment_id {condition} AND object_sha256 IS NOT NULL
    """  # noqa: S608 - constants below


DELETION_LOCK: Final = "delete objects"
"""Name of an advisory lock: who has it alone deletes rows of blobs, backups share it.

Shared by a backup from before its snapshot until its objects are copied.
"""

REFERENCES: Final = _make_references("AND series_id = ANY (CAST(:series_ids AS bigint[]))")
"""The references of some series."""

ALL_REFERENCES: Final = _make_references("")
"""The references of an experiment, also those of deleted series that are being erased."""


@dataclass(frozen=True, slots=True)
class ReferringSeries:
    """A series that refers to an object: its SHA-256, the first such step, and how many points."""

    series_id: int
    sha256: bytes
    first_step: int
    points: int


def list_digests(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], after: bytes, limit: int
) -> list[bytes]:
    """Return one page of the distinct SHA-256s that the series refer to, ascending.

    Reads all points of the series for every page.

    Args:
        db: A transaction.
        experiment_id: The experiment of all series.
        series_ids: The series.
        after: The last SHA-256 of the previous page; b"" for the first page.
        limit: SHA-256s at most.
    """
    statement = text(f"""
        SELECT DISTINCT sha256 FROM ({REFERENCES}) AS r
        WHERE sha256 > :after ORDER BY sha256 LIMIT :limit
    """)  # noqa: S608 - a constant
    parameters = {
        "experiment_id": experiment_id,
        "series_ids": list(series_ids),
        "after": after,
        "limit": limit,
    }
    return [bytes(sha256) for sha256 in db.execute(statement, parameters).scalars()]


def list_referring_series(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], digests: Sequence[bytes]
) -> list[ReferringSeries]:
    """Return the series that refer to each of these objects, by series and then by step."""
    statement = text(f"""
        SELECT series_id, sha256, min(step) AS first_step, count(*) AS points
        FROM ({REFERENCES}) AS r
        WHERE sha256 = ANY (CAST(:digests AS bytea[]))
        GROUP BY series_id, sha256 ORDER BY series_id, first_step
    """)  # noqa: S608 - a constant
    parameters = {
        "experiment_id": experiment_id,
        "series_ids": list(series_ids),
        "digests": list(digests),
    }
    rows = db.execute(statement, parameters)
    return [
        ReferringSeries(row.series_id, bytes(row.sha256), row.first_step, row.points)
        for row in rows
    ]


def list_all_digests(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int]
) -> list[bytes]:
    """Return the distinct SHA-256s that the series refer to, in no order."""
    statement = text(f"SELECT DISTINCT sha256 FROM ({REFERENCES}) AS r")  # noqa: S608 - a constant
    parameters = {"experiment_id": experiment_id, "series_ids": list(series_ids)}
    return [bytes(sha256) for sha256 in db.execute(statement, parameters).scalars()]


def list_digests_of_experiment(db: Connection, experiment_id: ExperimentId) -> list[bytes]:
    """Return the distinct SHA-256s that an experiment refers to, in no order."""
    statement = text(f"SELECT DISTINCT sha256 FROM ({ALL_REFERENCES}) AS r")  # noqa: S608 - a constant
    rows = db.execute(statement, {"experiment_id": experiment_id})
    return [bytes(sha256) for sha256 in rows.scalars()]


def delete_unused(db: Connection, experiment_id: ExperimentId, digests: Sequence[bytes]) -> None:
    """Delete the experiment's right to the blobs, of these, that none of its points refers to.

    So a token of the experiment alone cannot name them any more. Rows and objects of the workspace
    remain. Reads all references of the experiment.
    """
    if not digests:
        return
    series = text("""
        SELECT series_id FROM time_series
        WHERE experiment_id = :experiment_id AND data_class = ANY (:data_classes)
    """)
    classes = [int(data_class) for data_class in REFERRING_CLASSES]
    series_ids = db.execute(series, {"experiment_id": experiment_id, "data_classes": classes})
    statement = text(f"""
        DELETE FROM experiment_blobs
        WHERE experiment_id = :experiment_id AND sha256 = ANY (CAST(:digests AS bytea[]))
            AND sha256 NOT IN (SELECT sha256 FROM ({REFERENCES}) AS r)
    """)  # noqa: S608 - a constant
    parameters = {
        "experiment_id": experiment_id,
        "series_ids": list(series_ids.scalars()),
        "digests": list(digests),
    }
    db.execute(statement, parameters)


def try_lock_deletion(db: Connection) -> bool:
    """Keep backups from beginning until the transaction ends; return False while one runs."""
    return citus.try_lock_name(db, DELETION_LOCK)


def lock_out_deletion(db: Connection) -> None:
    """Let nobody delete rows of blobs until the transaction ends. Waits for who does."""
    statement = "SELECT pg_advisory_xact_lock_shared(hashtextextended(:name, 0))"
    db.execute(text(statement), {"name": DELETION_LOCK})
