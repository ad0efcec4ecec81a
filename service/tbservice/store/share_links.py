"""Queries on the rows of `tokens` that are share links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, text

from tbservice.types import ExperimentGrant, ExperimentId, LinkView, TokenId


@dataclass(frozen=True, slots=True)
class ShareLink:
    """A share link without its secret. `target` is the experiment it opens, or its frozen copy."""

    token_id: TokenId
    target: ExperimentId
    label: str
    prefix: str
    run_pattern: str | None
    tag_pattern: str | None
    is_anonymous: bool
    is_frozen: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


_COLUMNS: Final = """
    t.token_id, t.experiment_id AS target, t.label, t.prefix, t.run_pattern, t.tag_pattern,
    t.is_anonymous, t.experiment_id <> :experiment_id AS is_frozen, t.created_at, t.expires_at,
    t.revoked_at, t.last_used_at
"""

_IS_OF_EXPERIMENT: Final = """
    t.is_link AND t.experiment_id = ANY (ARRAY(
        SELECT experiment_id FROM experiments
        WHERE experiment_id = :experiment_id OR snapshot_of = :experiment_id))
"""


def create(
    db: Connection,
    grant: ExperimentGrant,
    shown: LinkView,
    target: ExperimentId,
    label: str,
    prefix: str,
    digest: bytes,
    expires_at: datetime | None,
) -> ShareLink:
    """Insert a link, a token that may only read.

    Args:
        db: A transaction of the workspace.
        grant: The right on the experiment.
        shown: What the link shows, and a new token id.
        target: The experiment, or the copy of it that the link opens.
        label: A name for people.
        prefix: The secret's first characters, for listings.
        digest: SHA-256 of the secret.
        expires_at: None for never.
    """
    row = db.execute(
        text(f"""
            INSERT INTO tokens AS t (token_id, workspace_id, experiment_id, scopes, label, prefix,
                digest, expires_at, is_link, run_pattern, tag_pattern, is_anonymous)
            VALUES (:token_id, :workspace_id, :target, '{{read}}', :label, :prefix,
                :digest, :expires_at, true, :run_pattern, :tag_pattern, :is_anonymous)
            RETURNING {_COLUMNS}
        """),  # noqa: S608 - a constant above
        {
            "experiment_id": grant.experiment_id,
            "token_id": shown.token_id,
            "workspace_id": grant.workspace_id,
            "target": target,
            "label": label,
            "prefix": prefix,
            "digest": digest,
            "expires_at": expires_at,
            "run_pattern": shown.run_pattern,
            "tag_pattern": shown.tag_pattern,
            "is_anonymous": shown.is_anonymous,
        },
    )
    return _link(row.one())


def count_restricted(db: Connection, experiment_id: ExperimentId) -> int:
    """Return how many valid links show less of the experiment itself than all of it."""
    statement = text("""
        SELECT count(*) FROM tokens
        WHERE experiment_id = :experiment_id AND is_link
            AND (run_pattern IS NOT NULL OR tag_pattern IS NOT NULL OR is_anonymous)
            AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    """)
    return int(db.execute(statement, {"experiment_id": experiment_id}).scalar_one())


def list_page(
    db: Connection,
    experiment_id: ExperimentId,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[ShareLink]:
    """Return one page of an experiment's links and those of its frozen copies, newest first.

    `before` is (created_at, id) of the previous page's last link; None for the first page.
    """
    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS} FROM tokens AS t
            WHERE {_IS_OF_EXPERIMENT}
                AND (CAST(:created_at AS timestamptz) IS NULL OR created_at < :created_at
                    OR (created_at = :created_at AND token_id > :token_id))
            ORDER BY created_at DESC, token_id LIMIT :limit
        """),  # noqa: S608 - constants above
        {
            "experiment_id": experiment_id,
            "created_at": before[0] if before else None,
            "token_id": before[1] if before else "",
            "limit": limit,
        },
    )
    return [_link(row) for row in rows]


def rename(
    db: Connection, experiment_id: ExperimentId, token_id: TokenId, label: str
) -> ShareLink | None:
    """Change the label of a link; None if the experiment has no such link."""
    return _update(db, experiment_id, token_id, "label = :label", {"label": label})


def revoke(db: Connection, experiment_id: ExperimentId, token_id: TokenId) -> ShareLink | None:
    """Revoke a link; None if the experiment has no such link. Idempotent."""
    return _update(db, experiment_id, token_id, "revoked_at = least(revoked_at, now())", {})


def _update(
    db: Connection,
    experiment_id: ExperimentId,
    token_id: TokenId,
    change: str,
    parameters: dict[str, str],
) -> ShareLink | None:
    row = db.execute(
        text(f"""
            UPDATE tokens AS t SET {change}
            WHERE t.token_id = :token_id AND {_IS_OF_EXPERIMENT}
            RETURNING {_COLUMNS}
        """),  # noqa: S608 - constants
        {"experiment_id": experiment_id, "token_id": token_id, **parameters},
    ).one_or_none()
    return None if row is None else _link(row)


def _link(row: Row[Any]) -> ShareLink:
    return ShareLink(**row._mapping)
