"""Queries on `katib_experiments`: what was recorded of Katib's experiments."""

from __future__ import annotations

from sqlalchemy import Connection, text

from tbservice.types.grants import AppendGrant


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
            WHERE k.summary_digest <> excluded.summary_digest
        RETURNING true
    """)
    parameters = {
        "experiment_id": grant.experiment_id,
        "workspace_id": grant.workspace_id,
        "name_digest": name_digest,
        "summary_digest": summary_digest,
    }
    return db.execute(statement, parameters).scalar() is not None
