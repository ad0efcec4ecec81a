"""Delete experiments: hide them at once, restore them for some days, then erase them.

And erase what is left of deleted workspaces and people.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.receipts import count_kept_copies
from tbservice.audit.recording import Detail, record
from tbservice.auth import secrets
from tbservice.auth.deletion import lock_due
from tbservice.auth.tables import deletions
from tbservice.errors import NotFound
from tbservice.experiments import snapshots
from tbservice.experiments.lifecycle import NOT_FOUND, index_words
from tbservice.experiments.listing import Page
from tbservice.experiments.tables import (
    experiment_deletion,
    experiment_words,
    person_rows,
    workspace_rows,
)
from tbservice.objects.tables import blobs, object_references
from tbservice.pagination import decode_page_token, encode_page_token
from tbservice.quotas.tables import traffic_groups
from tbservice.types.experiments import RESTORABLE, Experiment
from tbservice.types.grants import AdminGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId
from tbservice.types.quotas import EXPERIMENT
from tbservice.types.suspensions import Suspendable


def delete_experiment(
    db: Connection, grant: AdminGrant, *, is_final: bool = False, keeps_copies: bool = False
) -> None:
    """Hide the experiment and its snapshots from everybody, at once.

    They are erased after `RESTORABLE`; with `is_final` as soon as possible, and
    cannot be restored. With `keeps_copies`, its snapshots stay, each until its link ends, also if
    the experiment is restored. An ingest in progress fails at its last statement and rolls back.
    Raises NotFound if the experiment was deleted before, and as `keep_copies`.
    """
    kept_copies = snapshots.keep_copies(db, grant) if keeps_copies else 0
    copies = snapshots.count_copies(db, grant)
    kept = timedelta() if is_final else RESTORABLE
    hidden = experiment_deletion.hide(db, grant.experiment_id, kept)
    if hidden is None:
        raise NotFound(NOT_FOUND)
    counts = {"frozen_copies": copies, "frozen_copies_kept": kept_copies}
    _record(db, Act.EXPERIMENT_DELETE, grant.workspace_id, hidden, is_final=is_final, **counts)


def expire_experiment(
    db: Connection, workspace_id: WorkspaceId, experiment_id: ExperimentId
) -> bool:
    """Delete an experiment that has expired, as its owner would; return whether it did.

    One that is not to be deleted yet is looked at again a day later: data arrived within a day, or
    it has a frozen copy, whose link has promised to stay.
    """
    if not experiment_deletion.has_expired(db, experiment_id):
        return False  # its owner has changed that meanwhile
    if experiment_deletion.postpone_expiry(db, experiment_id):
        return False
    hidden = experiment_deletion.hide(db, experiment_id, RESTORABLE)
    if hidden is None:
        return False
    _record(db, Act.EXPERIMENT_EXPIRE, workspace_id, hidden)
    return True


@dataclass(slots=True)
class ErasureTally:
    """Rows and objects of an experiment and its snapshots that are erased so far.

    Objects and their bytes are those that it referred to; other experiments may use some, which
    stay then. None if another process has begun it: it may have removed some.
    """

    frozen_copies: int | None = None
    rows: int | None = None
    objects: int | None = None
    object_bytes: int | None = None


def begin_erasure(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    *,
    is_due: bool = False,
) -> ErasureTally | None:
    """Let nobody see or restore an experiment that is to be erased; return None if it was restored.

    With `is_due`, it is erased in any case: its workspace is.
    """
    if is_due:
        experiment_deletion.hide(db, experiment_id, timedelta())
    is_first = experiment_deletion.claim(db, experiment_id, is_due=is_due)
    if is_first is None:
        return None
    # A snapshot is due when its link expires, without having been deleted.
    experiment_deletion.hide(db, experiment_id, timedelta())
    if not is_first:
        return ErasureTally()
    copies = len(experiment_deletion.list_snapshots(db, experiment_id))
    digests = object_references.list_digests_of_experiment(db, experiment_id)
    return ErasureTally(copies, 0, len(digests), blobs.measure(db, workspace_id, digests))


def erase_some(
    db: Connection,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    rows_max: int,
    erasure: ErasureTally,
) -> bool:
    """Delete at most `rows_max` rows of a deleted experiment; return whether it is gone.

    With its last row, it is recorded that it was erased: what receipts are made of.
    """
    rows = experiment_deletion.erase_some(db, experiment_id, rows_max)
    if erasure.rows is not None:
        erasure.rows += rows
    if rows >= rows_max:
        return False
    erased = experiment_deletion.forget(db, experiment_id)
    traffic_groups.forget(db, workspace_id, EXPERIMENT, experiment_id)
    if erased is not None:
        record(
            db,
            Act.EXPERIMENT_ERASE,
            workspace_id,
            experiment_id,
            name=erased.name,
            deleted_at=erased.deleted_at.isoformat() if erased.deleted_at else None,
            points=erased.points,
            bytes=erased.bytes,
            frozen_copies_kept=count_kept_copies(db, workspace_id, experiment_id),
            **asdict(erasure),
        )
    return True


def erase_workspace(db: Connection, workspace_id: WorkspaceId, rows_max: int) -> bool:
    """Delete at most `rows_max` rows of a deleted workspace without experiments.

    Returns whether none is left: nothing but its number, and what sweeps and the audit log need.
    What receipts are made of is recorded with the last one, and for administrators and who has
    deleted it where the acts of no workspace are.
    """
    deleted = lock_due(db, Suspendable.WORKSPACE, str(workspace_id))
    if deleted is None:
        return True
    rows = workspace_rows.delete_some(db, workspace_id, rows_max)
    if sum(rows.values()) >= rows_max:
        return False
    deletions.forget(db, deleted.subject)
    details: dict[str, Detail] = {
        "name": workspace_rows.take_name(db, workspace_id),
        "deleted_at": deleted.deleted_at.isoformat(),
        "members": rows["members"],
    }
    record(db, Act.WORKSPACE_ERASE, workspace_id, str(workspace_id), **details)
    details["workspace"] = str(workspace_id)
    record(db, Act.WORKSPACE_ERASE, None, deleted.deleted_by or str(workspace_id), **details)
    return True


def index_again(
    db: Connection, workspace_id: WorkspaceId, user_id: UserId, after: str, limit: int
) -> str:
    """Let searches find experiments by the present name of who created them, and no other.

    At most `limit` of those after an id; returns the last id, "" at the end.
    """
    listed = person_rows.list_created(db, workspace_id, user_id, after, limit)
    for experiment, is_listed in listed:
        index_words(db, workspace_id, experiment, is_archived=not is_listed)
    return listed[-1][0].experiment_id if len(listed) == limit else ""


def erase_person(db: Connection, user_id: UserId, rows: int) -> None:
    """Delete what is of no workspace of a deleted person: the last that is erased of them.

    `rows` were deleted in workspaces. The facts of a receipt are recorded.
    """
    deleted = lock_due(db, Suspendable.PERSON, user_id)
    if deleted is None:
        return
    rows += person_rows.delete_own(db, user_id)
    deletions.forget(db, deleted.subject)
    deleted_at = deleted.deleted_at.isoformat()
    record(db, Act.PERSON_ERASE, None, user_id, deleted_at=deleted_at, rows=rows)


def _record(
    db: Connection, act: Act, workspace_id: WorkspaceId, hidden: Experiment, **details: Detail
) -> None:
    """Record that an experiment was hidden, and let searches find it no longer."""
    experiment_words.replace(db, workspace_id, hidden.number, ())
    experiment_id = hidden.experiment_id
    record(db, act, workspace_id, experiment_id, name=hidden.name, **details)


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
