"""Delete the rows of a deleted person, and what says who they were."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from tbservice.auth.tables import operators
from tbservice.db.database import set_local
from tbservice.db.schema_parts import has_column
from tbservice.experiments.tables import page_reports
from tbservice.experiments.tables.experiments import COLUMNS, make_experiment
from tbservice.quotas.tables import traffic_groups
from tbservice.types.experiments import Experiment
from tbservice.types.identifiers import UserId, WorkspaceId
from tbservice.types.quotas import PERSON

_OF_WORKSPACE: Final = ("experiment_stars", "saved_searches", "tokens", "members")
_OWN: Final = ("browser_sessions", "sign_in_links", "device_logins", "user_identities")

ERASED_NAME: Final = "deleted person #"
"""Name that others see then, with the first characters of the id."""

_ID_CHARS_SHOWN: Final = 8


def delete_of_workspace(db: Connection, workspace_id: WorkspaceId, user_id: UserId) -> int:
    """Delete what a workspace has of a person, in a transaction of it; return how many rows.

    What they have made there belongs to the workspace. It loses the address of invitations that
    they have accepted, or that were for the same address.
    """
    values = {"workspace_id": workspace_id, "user_id": user_id}
    deleted = traffic_groups.forget(db, workspace_id, PERSON, user_id)
    for table in _OF_WORKSPACE:
        statement = text(f"""
            DELETE FROM {table} WHERE workspace_id = :workspace_id AND user_id = :user_id
        """)  # noqa: S608 - constants above
        deleted += db.execute(statement, values).rowcount
    db.execute(
        text("""
            UPDATE invitations SET email = '' WHERE workspace_id = :workspace_id AND email <> ''
                AND (accepted_by = :user_id OR lower(email) IN (
                    SELECT lower(email) FROM users WHERE user_id = :user_id))
        """),
        values,
    )
    return deleted


def take_name(db: Connection, user_id: UserId) -> None:
    """Replace the name of a person by a pseudonym, and take the address. Idempotent.

    The row of `users` stays, disabled: others' experiments, tokens and records name it.
    """
    has_last_workspace = has_column(db, "users", "last_workspace_id")
    last_workspace = ", last_workspace_id = NULL" if has_last_workspace else ""
    db.execute(
        text(f"""
            UPDATE users SET name = :name, email = '', email_key = NULL, is_disabled = true
                {last_workspace}
            WHERE user_id = :user_id
        """),  # noqa: S608 - a constant above
        {"user_id": user_id, "name": ERASED_NAME + user_id[:_ID_CHARS_SHOWN]},
    )


def list_created(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, after: str, limit: int
) -> list[tuple[Experiment, bool]]:
    """Return experiments of a workspace that a person has created, and whether lists show each.

    In the order of their ids, at most `limit` of those after an id.
    """
    statement = text(f"""
        SELECT {COLUMNS}, is_listed FROM experiments
        WHERE created_by = :user_id AND workspace_id = :workspace_id AND snapshot_of IS NULL
            AND experiment_id > :after
        ORDER BY experiment_id LIMIT :limit
    """)  # noqa: S608 - a constant
    values = {"user_id": user_id, "workspace_id": workspace_id, "after": after, "limit": limit}
    return [(make_experiment(row), row.is_listed) for row in db.execute(statement, values)]


def delete_own(db: Connection, user_id: UserId) -> int:
    """Delete what is of no workspace; return how many rows there were."""
    set_local(db, "user_id", user_id)
    deleted = 0
    for table in _OWN:
        statement = text(f"DELETE FROM {table} WHERE user_id = :user_id")  # noqa: S608 - constants above
        deleted += db.execute(statement, {"user_id": user_id}).rowcount
    if operators.exist(db):
        statement = text("DELETE FROM operators WHERE user_id = :user_id")
        deleted += db.execute(statement, {"user_id": user_id}).rowcount
    if page_reports.open_table(db):
        statement = text("UPDATE page_reports SET user_id = '', contact = '' WHERE user_id = :id")
        db.execute(statement, {"id": user_id})
    return deleted
