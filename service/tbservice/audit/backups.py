"""Backups in the audit log: each records itself when it is complete."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from tbservice.audit.acts import Act
from tbservice.audit.recording import NO_WORKSPACE
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


def _parse(record: AuditRecord) -> RecordedBackup:
    details: dict[str, Any] = json.loads(record.details)
    return RecordedBackup(
        record.object_id,
        details["target"],
        datetime.fromisoformat(details["began_at"]),
        record.recorded_at,
        details["bytes"],
        details["objects"],
        details["lost"],
        None if "keep_days" not in details else float(details["keep_days"]),
    )
