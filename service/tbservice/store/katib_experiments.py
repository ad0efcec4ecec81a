"""Queries on `katib_experiments`: what was recorded of Katib's experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

from tbservice.types import AppendGrant, ExperimentId


def lock_summary_digest(
    db: Connection, grant: AppendGrant, name_digest: bytes, summary_digest: bytes
) -> bool:
    """Set the digest of the experiment summary; return whether it was another one.

    Locks the row if it was, until the transaction ends.
    """
    statement = text("""
        INSERT INTO katib_experiments AS k
            (experiment_id, name_digest, workspace_id, summary_digest)
        VALUES (:experiment_id, :name_digest, :workspace_id, :summary_digest)
        ON CONFLICT (experiment_id, name_digest) DO UPDATE
            SET summary_digest = excluded.summary_digest
            WHERE k.summary_digest IS DISTINCT FROM excluded.summary_digest
        RETURNING true
    """)
    parameters = {**_key(grant, name_digest), "summary_digest": summary_digest}
    return db.execute(statement, parameters).scalar() is not None


def load_state(
    db: Connection, experiment_id: ExperimentId, name_digest: bytes, spec_digest: bytes
) -> bytes | None:
    """Return the state of the suggestion algorithm for this specification, if there is any."""
    statement = text("""
        SELECT state FROM katib_experiments WHERE experiment_id = :experiment_id
            AND name_digest = :name_digest AND spec_digest = :spec_digest
    """)
    parameters = {
        "experiment_id": experiment_id,
        "name_digest": name_digest,
        "spec_digest": spec_digest,
    }
    state = db.execute(statement, parameters).scalar()
    return None if state is None else bytes(state)


def save_state(
    db: Connection, grant: AppendGrant, name_digest: bytes, spec_digest: bytes, state: bytes | None
) -> None:
    """Replace the state of the suggestion algorithm, that of another specification too."""
    statement = text("""
        INSERT INTO katib_experiments (experiment_id, name_digest, workspace_id, spec_digest, state)
        VALUES (:experiment_id, :name_digest, :workspace_id, :spec_digest, :state)
        ON CONFLICT (experiment_id, name_digest)
            DO UPDATE SET spec_digest = excluded.spec_digest, state = excluded.state
    """)
    parameters = {**_key(grant, name_digest), "spec_digest": spec_digest, "state": state}
    db.execute(statement, parameters)


def _key(grant: AppendGrant, name_digest: bytes) -> Mapping[str, Any]:
    return {
        "experiment_id": grant.experiment_id,
        "workspace_id": grant.workspace_id,
        "name_digest": name_digest,
    }
