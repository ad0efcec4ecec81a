"""Queries on the rows of `tokens` that are share links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.auth.tables.tokens import PAGE, page_values
from tbservice.types.grants import ExperimentGrant, LinkView
from tbservice.types.identifiers import ExperimentId, TokenId, UserId, WorkspaceId
from tbservice.types.people import Person


@dataclass(frozen=True, slots=True)
class ShareLink:
    """A share link without its secret.

    `target` is the experiment that it opens, or a frozen copy of it. `created_by` is None where a
    machine made the link, or where its creator was not recorded.
    """

    token_id: TokenId
    target: ExperimentId
    label: str
    prefix: str
    run_pattern: str | None
    tag_pattern: str | None
    is_anonymous: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_frozen: bool
    created_by: Person | None


@dataclass(frozen=True, slots=True)
class PlacedLink:
    """A share link, and the experiment that it was made for, which may have a frozen copy."""

    link: ShareLink
    experiment_id: ExperimentId
    experiment_name: str


_COLUMNS: Final = """
    t.token_id, t.experiment_id, t.label, t.prefix, t.run_pattern, t.tag_pattern, t.is_anonymous,
    t.created_at, t.expires_at, t.revoked_at, t.last_used_at, u.user_id, u.name, u.email
"""

_OF_EXPERIMENT: Final = f"{_COLUMNS}, t.experiment_id <> :experiment_id"

_IS_VALID: Final = (
    "t.is_link AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())"
)

_CREATORS: Final = "LEFT JOIN users AS u ON u.user_id = t.created_by"

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
        shown: View of the link, and a new token id.
        target: The experiment, or the copy of it that the link opens.
        label: A name for people.
        prefix: The secret's first characters, for listings.
        digest: SHA-256 of the secret.
        expires_at: None for never.
    """
    row = db.execute(
        text(f"""
            WITH t AS (
                INSERT INTO tokens (token_id, workspace_id, experiment_id, scopes, label, prefix,
                    digest, expires_at, is_link, run_pattern, tag_pattern, is_anonymous, created_by)
                VALUES (:token_id, :workspace_id, :target, '{{read}}', :label, :prefix, :digest,
                    :expires_at, true, :run_pattern, :tag_pattern, :is_anonymous, :created_by)
                RETURNING *)
            SELECT {_OF_EXPERIMENT} FROM t {_CREATORS}
        """),  # noqa: S608 - constants above
        {
            **asdict(shown),
            "created_by": grant.user_id,
            "experiment_id": grant.experiment_id,
            "workspace_id": grant.workspace_id,
            "target": target,
            "label": label,
            "prefix": prefix,
            "digest": digest,
            "expires_at": expires_at,
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
            SELECT {_OF_EXPERIMENT} FROM tokens AS t {_CREATORS}
            WHERE {_IS_OF_EXPERIMENT} {PAGE}
        """),  # noqa: S608 - constants above
        {"experiment_id": experiment_id, **page_values(before, limit)},
    )
    return [_link(row) for row in rows]


def list_page_of_workspace(
    db: Connection,
    workspace_id: WorkspaceId,
    created_by: UserId | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> list[PlacedLink]:
    """Return one page of the valid links to experiments of a workspace, newest first.

    None for `created_by` lists the links of all creators. Links of deleted experiments are left
    out. The other arguments are those of `list_page`.
    """
    rows = db.execute(
        text(f"""
            SELECT {_COLUMNS}, e.snapshot_of IS NOT NULL,
                coalesce(e.snapshot_of, e.experiment_id), e.name
            FROM experiments AS e JOIN tokens AS t ON t.experiment_id = e.experiment_id {_CREATORS}
            WHERE e.workspace_id = :workspace_id AND e.deleted_at IS NULL AND {_IS_VALID}
                AND (CAST(:created_by AS text) IS NULL OR t.created_by = :created_by) {PAGE}
        """),  # noqa: S608 - constants above
        {"workspace_id": workspace_id, "created_by": created_by, **page_values(before, limit)},
    )
    return [PlacedLink(_link(row[:-2]), *row[-2:]) for row in rows]


def count_by_creator(db: Connection, workspace_id: WorkspaceId) -> dict[UserId, int]:
    """Return the numbers of valid links to experiments of a workspace, of people who made any."""
    statement = text(f"""
        SELECT t.created_by, count(*)
        FROM experiments AS e JOIN tokens AS t ON t.experiment_id = e.experiment_id
        WHERE e.workspace_id = :workspace_id AND e.deleted_at IS NULL AND {_IS_VALID}
            AND t.created_by IS NOT NULL
        GROUP BY t.created_by
    """)  # noqa: S608 - a constant above
    rows = db.execute(statement, {"workspace_id": workspace_id})
    return {UserId(user_id): count for user_id, count in rows}


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
    values = {"experiment_id": experiment_id, "token_id": token_id}
    is_link = f"t.token_id = :token_id AND {_IS_OF_EXPERIMENT}"
    update = text(f"UPDATE tokens AS t SET {change} WHERE {is_link}")  # noqa: S608 - constants
    db.execute(update, values | parameters)
    select = f"SELECT {_OF_EXPERIMENT} FROM tokens AS t {_CREATORS} WHERE {is_link}"  # noqa: S608 - the same
    row = db.execute(text(select), values).one_or_none()
    return None if row is None else _link(row)


def _link(row: Sequence[Any]) -> ShareLink:
    *shown, user_id, name, email, is_frozen = row
    fields = [*shown, is_frozen, Person.of(user_id, name, email)]
    return ShareLink(*fields)
