"""Receipts of deletion: when something was gone from the tables, and from the bucket.

They are read from the audit log, whose chain of digests is what proves them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.backups import find_last_before, list_backups
from tbservice.audit.log import list_records
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.audit.tables import audit_records
from tbservice.db.pipeline import set_locals
from tbservice.types.audit import AuditFilter, AuditRecord, Receipt
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import UserId, WorkspaceId

_SWEEPS_ITEMS_MAX: Final = 1_000
"""Sweeps (items) since the oldest erasure of a page that are looked through."""

_ERASURES: Final = (Act.EXPERIMENT_ERASE, Act.RUN_ERASE, Act.SERIES_ERASE)
"""Acts of which the receipts of a workspace are made."""

_BACKUP_TIME_MAX: Final = timedelta(days=7)
"""Time that a backup takes at most, for the receipts."""

RECEIPTS_ITEMS_MAX: Final = 10_000
"""Receipts (items) that are returned together, the last ones."""


def record_sweep(
    db: Connection,
    workspace_id: WorkspaceId,
    began_at: datetime,
    days: float,
    objects: int,
    size: int,
) -> None:
    """Record a complete sweep of a workspace if it deleted anything, or an erasure waits for it.

    Args:
        db: A transaction of the workspace.
        workspace_id: The workspace.
        began_at: When it began, by the clock of the database.
        days: Age from which it looked at objects.
        objects: Objects that it deleted.
        size: Their bytes.
    """
    if objects or _waits(db, workspace_id):
        times = {"began_at": began_at.isoformat(), "older_than_days": str(days)}
        record(db, Act.OBJECTS_SWEEP, workspace_id, objects=objects, bytes=size, **times)


def record_erased(db: Connection, workspace_id: WorkspaceId, experiment_id: str) -> None:
    """Record that no table has points of the runs and series which were deleted until now.

    The row of the experiment is locked: who deletes more of it commits later. Each deletion since
    the last such record gets one of its own; those of the release before, whose records do not say
    how much it was, get none.
    """
    if not audit_records.exist(db):
        return
    of = partial(AuditFilter, object_id=experiment_id)
    known = of((Act.RUN_ERASE, Act.SERIES_ERASE))
    last = audit_records.list_page(db, workspace_id, known, None, 1)
    done, since = 0, None
    if last:
        details = json.loads(last[0].details)
        done, since = details["deletion"], datetime.fromisoformat(details["deleted_at"])
    wanted = of((Act.RUN_DELETE, Act.SERIES_DELETE), since=since)
    for each in audit_records.list_page(db, workspace_id, wanted, None, RECEIPTS_ITEMS_MAX)[::-1]:
        details = json.loads(each.details)
        if each.number <= done or "objects" not in details:
            continue
        act = Act.RUN_ERASE if each.act == Act.RUN_DELETE else Act.SERIES_ERASE
        details |= {"deletion": each.number, "deleted_at": each.recorded_at.isoformat()}
        record(db, act, workspace_id, experiment_id, **details)


def count_kept_copies(db: Connection, workspace_id: WorkspaceId, experiment_id: str) -> int:
    """Return how many frozen copies of an experiment were kept at its deletions.

    Several, if it was restored between.
    """
    if not audit_records.exist(db):
        return 0
    wanted = AuditFilter(Act.EXPERIMENT_DELETE, object_id=experiment_id)
    deletions = audit_records.list_page(db, workspace_id, wanted, None, RECEIPTS_ITEMS_MAX)
    return sum(json.loads(each.details).get("frozen_copies_kept", 0) for each in deletions)


def _waits(db: Connection, workspace_id: WorkspaceId) -> bool:
    """Return whether something was erased of which a sweep may have left objects."""
    if not audit_records.exist(db):
        return False
    wanted = AuditFilter((Act.WORKSPACE_ERASE, *_ERASURES))
    last = audit_records.list_page(db, workspace_id, wanted, None, limit=1)
    return any(receipt.swept is None for receipt in _make_receipts(db, workspace_id, last))


def list_receipts(
    db: Connection, grant: OwnerGrant, after: str | None, limit: int
) -> tuple[list[Receipt], str | None]:
    """Return a page of the receipts of experiments, runs and series, the last erased first.

    Raises MalformedRequest if `after` is not a page token.
    """
    erased, following = list_records(db, grant, AuditFilter(_ERASURES), after, limit)
    return _make_receipts(db, grant.workspace_id, erased), following


def list_of_erased(db: Connection, workspace_id: WorkspaceId) -> list[Receipt]:
    """Return the last receipts of a workspace, of itself and then of what it had, the last first.

    For who has deleted it, and administrators. In a transaction of the workspace; of
    `NO_WORKSPACE`: those of people.
    """
    filters = [AuditFilter(Act.PERSON_ERASE)]
    if workspace_id != NO_WORKSPACE:
        filters = [AuditFilter(Act.WORKSPACE_ERASE), AuditFilter(_ERASURES)]
    receipts: list[Receipt] = []
    for wanted in filters if audit_records.exist(db) else ():
        erased = audit_records.list_page(db, workspace_id, wanted, None, RECEIPTS_ITEMS_MAX)
        receipts += _make_receipts(db, workspace_id, erased)
    return receipts


def list_erased_workspaces(db: Connection, user_id: UserId) -> list[AuditRecord]:
    """Return the records of the workspaces that a person has deleted and that are erased.

    In a transaction of `NO_WORKSPACE`. `object_id` is the person, the workspace is in the details.
    """
    if not audit_records.exist(db):
        return []
    wanted = AuditFilter(Act.WORKSPACE_ERASE, object_id=user_id)
    return audit_records.list_page(db, NO_WORKSPACE, wanted, None, RECEIPTS_ITEMS_MAX)


def _make_receipts(
    db: Connection, workspace_id: WorkspaceId, erased: Sequence[AuditRecord]
) -> list[Receipt]:
    if not erased:
        return []
    wanted = AuditFilter(Act.OBJECTS_SWEEP, since=erased[-1].recorded_at)
    sweeps = audit_records.list_page(db, workspace_id, wanted, None, _SWEEPS_ITEMS_MAX)[::-1]
    # Also one that was made meanwhile, and complete some days later.
    backups = list_backups(db, erased[0].recorded_at + _BACKUP_TIME_MAX)
    set_locals(db, {"tbhub.workspace_id": str(workspace_id)})
    return [
        Receipt(
            each,
            next((sweep for sweep in sweeps if _is_after(sweep, each)), None),
            find_last_before(backups, each.recorded_at),
        )
        for each in erased
    ]


def _is_after(sweep: AuditRecord, erased: AuditRecord) -> bool:
    """Return whether a sweep has looked at all objects that the erased experiment left.

    They were stored before it was erased, and a sweep looks at those of some age.
    """
    details = json.loads(sweep.details)
    age = timedelta(days=float(details["older_than_days"]))
    return datetime.fromisoformat(details["began_at"]) > erased.recorded_at + age
