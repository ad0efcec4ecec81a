"""Backups in the audit log: each records itself when it is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE, record
from tbservice.audit.tables import audit_records
from tbservice.db.pipeline import set_locals
from tbservice.types.audit import AuditFilter, AuditRecord, to_text

BACKUPS_ITEMS_MAX: Final = 1_000
"""Backups (items) that are looked through for receipts, the last ones."""


class RecordedBackup(NamedTuple):
    """A complete backup: it has what there was when it began.

    `bytes` are those of the dump and of all objects that it names, most of which it may share with
    other backups of its target. `keep_days`: None if the operator had not said it.
    """

    name: str
    target: str
    began_at: datetime
    finished_at: datetime
    bytes: int
    objects: int
    lost: int
    keep_days: float | None

    @property
    def kept_until(self) -> datetime | None:
        """Until when it is kept; None if that is not known."""
        return None if self.keep_days is None else self.began_at + timedelta(days=self.keep_days)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        times = {"began_at": self.began_at, "finished_at": self.finished_at}
        times |= {} if self.kept_until is None else {"kept_until": self.kept_until}
        return {"kept_until": None, **self._asdict(), **{k: to_text(v) for k, v in times.items()}}

    def describe(self) -> str:
        """Return it as a text for people."""
        lost = f", {self.lost:,} objects of it were lost" if self.lost else ""
        kept = "" if self.kept_until is None else f", kept until {self.kept_until:%Y-%m-%d}"
        return (
            f"{self.name} in {self.target}, begun {to_text(self.began_at)}, {self.bytes:,} "
            f"bytes{lost}{kept}"
        )


def list_backups(
    db: Connection, until: datetime | None = None, limit: int = BACKUPS_ITEMS_MAX
) -> list[RecordedBackup]:
    """Return the last backups that were complete before a time, the last first.

    The transaction sees what is of no workspace afterwards.
    """
    if not audit_records.exist(db):
        return []
    set_locals(db, {"tbhub.workspace_id": str(NO_WORKSPACE)})
    wanted = AuditFilter(Act.DATABASE_BACKUP, until=until)
    return [_parse(each) for each in audit_records.list_page(db, NO_WORKSPACE, wanted, None, limit)]


def find_last_before(backups: Sequence[RecordedBackup], moment: datetime) -> datetime | None:
    """Return when the last of these began that did before a moment: no later one has what went."""
    return max((each.began_at for each in backups if each.began_at <= moment), default=None)


def record_restore(db: Connection, name: str, until: str, erased: Mapping[str, int]) -> None:
    """Record that a backup was restored, and which erasures were repeated: those until a time."""
    record(db, Act.DATABASE_RESTORE, None, name, until=until, **erased)


def find_repeated_until(db: Connection) -> str:
    """Return until which time (ISO 8601) erasures were repeated after a restore; "" for never.

    The transaction sees what is of no workspace afterwards.
    """
    if not audit_records.exist(db):
        return ""
    set_locals(db, {"tbhub.workspace_id": str(NO_WORKSPACE)})
    wanted = AuditFilter(Act.DATABASE_RESTORE)
    records = audit_records.list_page(db, NO_WORKSPACE, wanted, None, 1)
    return str(json.loads(records[0].details)["until"]) if records else ""


def _parse(stored: AuditRecord) -> RecordedBackup:
    details: dict[str, Any] = json.loads(stored.details)
    return RecordedBackup(
        stored.object_id,
        details["target"],
        datetime.fromisoformat(details["began_at"]),
        stored.recorded_at,
        details["bytes"],
        details["objects"],
        details["lost"],
        None if "keep_days" not in details else float(details["keep_days"]),
    )
