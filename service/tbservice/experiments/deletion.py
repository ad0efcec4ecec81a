"""Delete experiments: hide them at once, restore them for some days, then erase them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import record
from tbservice.auth import secrets
from tbservice.errors import NotFound
from tbservice.experiments.lifecycle import NOT_FOUND, index_words
from tbservice.experiments.listing import Page
from tbservice.experiments.tables import experiment_deletion, experiment_words
from tbservice.pagination import decode_page_token, encode_page_token
from tbservice.types.experiments import Experiment
from tbservice.types.grants import AdminGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId

DELETED_EXPERIMENT_SECONDS: Final = 7 * 24 * 3600
"""Seconds after which a deleted experiment is erased; until then it can be restored."""


def delete_experiment(db: Connection, grant: AdminGrant, *, is_final: bool = False) -> None:
    """Hide the experiment and its snapshots from everybody, at once.

    They are erased after DELETED_EXPERIMENT_SECONDS; with `is_final` as soon as possible, and
    cannot be restored. An ingest in progress fails at its last statement and rolls back. Raises
    NotFound if the experiment was deleted before.
    """
    seconds = 0 if is_final else DELETED_EXPERIMENT_SECONDS
    hidden = experiment_deletion.hide(db, grant.experiment_id, seconds)
    if hidden is None:
        raise NotFound(NOT_FOUND)
    experiment_words.replace(db, grant.workspace_id, hidden.number, ())
    record(
        db,
        Act.EXPERIMENT_DELETE,
        grant.workspace_id,
        grant.experiment_id,
        name=hidden.name,
        is_final=is_final,
    )


def restore_experiment(db: Connection, grant: WorkspaceGrant, experiment_id: str) -> Experiment:
    """Undo the deletion of an experiment, with all of its data, tokens and links.

    Raises NotFound if the workspace has no such deleted experiment, or it is being erased.
    """
    restored = None
    if secrets.is_experiment_id(experiment_id):
        restored = experiment_deletion.restore(db, grant.workspace_id, ExperimentId(experiment_id))
    if restored is None:
        raise NotFound("there is no such deleted experiment, or it is not yours")
    index_words(db, grant.workspace_id, restored)
    record(db, Act.EXPERIMENT_RESTORE, grant.workspace_id, restored.experiment_id)
    return restored


def list_deleted(db: Connection, grant: WorkspaceGrant, after: str | None, limit: int) -> Page:
    """Return a page of the deleted experiments that can be restored, the last deleted first.

    Raises MalformedRequest if `after` is not a page token.
    """
    position = decode_page_token(after) if after else None
    rows = experiment_deletion.list_page(db, grant.workspace_id, position, limit + 1)
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    token = None
    if last is not None and last.deleted_at is not None:
        token = encode_page_token(last.deleted_at, last.experiment_id)
    return Page(page, token)
