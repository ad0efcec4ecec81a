"""Read the audit log, by owners and operators; check its chains; delete what is too old."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice.audit import chain
from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.audit.tables import audit_records
from tbservice.db.clock import read_now
from tbservice.db.database import Database
from tbservice.errors import MalformedRequest, StartupError
from tbservice.pagination import cut_page
from tbservice.types.audit import AuditFilter, AuditRecord
from tbservice.types.grants import OwnerGrant
from tbservice.types.identifiers import INT64_MAX, WorkspaceId

_SCAN_ITEMS: Final = 1_000


def list_records(
    db: Connection, grant: OwnerGrant, wanted: AuditFilter, after: str | None, limit: int
) -> tuple[list[AuditRecord], str | None]:
    """Return a page of the workspace's records, and the page token of the next one, if any.

    The newest first; none before the migration that adds the log. Raises MalformedRequest if
    `after` is not a page token.
    """
    before = _decode(after) if after else None
    if not audit_records.exist(db):
        return [], None
    rows = audit_records.list_page(db, grant.workspace_id, wanted, before, limit + 1)
    return cut_page(rows, limit, lambda last: str(last.number))


def _decode(after: str) -> int:
    if not (after.isascii() and after.isdecimal() and int(after) <= INT64_MAX):
        raise MalformedRequest("'after' is not the 'next' of an earlier page")
    return int(after)


def read_after(db: Connection, workspace_id: WorkspaceId, number: int) -> Iterator[AuditRecord]:
    """Yield the records of a workspace above a number, the oldest first; below 0: the last ones."""
    if not audit_records.exist(db):
        return
    if number < 0:
        number += audit_records.find_head(db, workspace_id).number
    is_last = False
    while not is_last:
        page = audit_records.list_after(db, workspace_id, number, _SCAN_ITEMS)
        yield from page
        is_last = len(page) < _SCAN_ITEMS
        number = page[-1].number if page else number


def check_chains(
    database: Database, workspace_ids: Iterable[WorkspaceId]
) -> Iterator[tuple[WorkspaceId, str]]:
    """Yield what is wrong with the chains of these workspaces, and of what is of none."""
    for workspace_id in (NO_WORKSPACE, *workspace_ids):
        with database.snapshot(workspace_id) as db:
            if not audit_records.exist(db):
                return
            head = audit_records.find_head(db, workspace_id)
            records = read_after(db, workspace_id, 0)
            for broken in chain.find_breaks(workspace_id, records, head):
                yield workspace_id, broken


def expire(database: Database, workspace_id: WorkspaceId, days: int) -> int:
    """Delete the records of a workspace that are older than so many days; return how many.

    In one transaction with a record that has the last digest which is gone. Raises StartupError if
    the role may not delete: the owner of the tables may.
    """
    with database.transaction(workspace_id) as db:
        if not audit_records.exist(db):
            return 0
        last = audit_records.find_last_before(db, workspace_id, read_now(db) - timedelta(days=days))
        if last is None:
            return 0
        if not audit_records.may_delete(db):
            raise StartupError(
                "this role cannot delete records of the audit log, as it should be for the one "
                "that serves: set TBHUB_DATABASE_URL to that of the owner of the tables"
            )
        deleted = audit_records.delete_until(db, workspace_id, last.number)
        record(
            db,
            Act.AUDIT_EXPIRE,
            workspace_id,
            deleted=deleted,
            last_number=last.number,
            last_digest=last.digest.hex(),
        )
        return deleted
