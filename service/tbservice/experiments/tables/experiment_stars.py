"""Queries on `experiment_stars`: the experiments that each person has starred."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, text

from tbservice.db.arrays import encode_array
from tbservice.db.schema_parts import has_table
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId

SELECT: Final = """
    SELECT experiment_id FROM experiment_stars
    WHERE workspace_id = :workspace_id AND user_id = {user_id}
"""
"""A query for the experiments that the person of a placeholder has starred."""


def exist(db: Connection) -> bool:
    """Return whether the schema has stars and saved searches, which a migration may add."""
    return has_table(db, "saved_searches")


def add(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId, user_id: UserId
) -> None:
    """Star an experiment for a person; a no-op if it is starred. IntegrityError if it is gone."""
    db.execute(
        text("""
            INSERT INTO experiment_stars (experiment_id, user_id, workspace_id)
            VALUES (:experiment_id, :user_id, :workspace_id) ON CONFLICT DO NOTHING
        """),
        {"experiment_id": experiment_id, "user_id": user_id, "workspace_id": workspace_id},
    )


def remove(db: Connection, experiment_id: ExperimentId, user_id: UserId) -> None:
    """Take the star of a person from an experiment; a no-op without one."""
    statement = text("""
        DELETE FROM experiment_stars WHERE experiment_id = :experiment_id AND user_id = :user_id
    """)
    db.execute(statement, {"experiment_id": experiment_id, "user_id": user_id})


def count(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> int:
    """Return how many experiments of a workspace a person has starred."""
    statement = text(f"SELECT count(*) FROM ({SELECT.format(user_id=':user_id')}) AS stars")  # noqa: S608 - a constant above
    counted: int = db.execute(
        statement, {"workspace_id": workspace_id, "user_id": user_id}
    ).scalar_one()
    return counted


def find(
    db: Connection,
    workspace_id: WorkspaceId,
    user_id: UserId,
    experiment_ids: Sequence[ExperimentId],
) -> set[ExperimentId]:
    """Return those of these experiments that a person has starred."""
    statement = text(f"""
        {SELECT.format(user_id=":user_id")} AND experiment_id = ANY (CAST(:ids AS text[]))
    """)
    rows = db.execute(
        statement,
        {
            "workspace_id": workspace_id,
            "user_id": user_id,
            "ids": encode_array("text", experiment_ids),
        },
    )
    return {ExperimentId(row.experiment_id) for row in rows}
