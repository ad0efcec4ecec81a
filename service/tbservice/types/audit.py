"""Values of the audit log: its records, the ends of chains, and what a list is filtered by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

FIRST_DIGEST: Final = bytes(32)
"""Digest before the first record of a chain."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditRecord(NamedTuple):
    """A recorded act. `details` is JSON; empty texts: none. See `acting.Acting` for the others."""

    number: int
    recorded_at: datetime
    act: str
    user_id: str
    means: str
    means_id: str
    network: str
    request_id: str
    object_id: str
    details: str
    digest: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return {
            **{name: text or None for name, text in self._asdict().items()},
            "recorded_at": to_text(self.recorded_at),
            "details": json.loads(self.details),
            "digest": self.digest.hex(),
        }


class ChainHead(NamedTuple):
    """The end of a chain: number and digest of its last record; how many the last day has."""

    number: int = 0
    digest: bytes = FIRST_DIGEST
    day: int = 0
    """Days since 1970 (UTC)."""
    day_items: int = 0


class Receipt(NamedTuple):
    """The proof that an experiment, a run, a series, a workspace or a person was erased.

    `erased` is the record of it, `swept` that of the first sweep after which the bucket has none of
    its objects; None until then, and for a person, who has none. `backup_at` is when the last
    recorded backup began before that; None: none is recorded.
    """

    erased: AuditRecord
    swept: AuditRecord | None
    backup_at: datetime | None = None

    @property
    def deleted_at(self) -> datetime:
        """When nobody could read it any more."""
        return datetime.fromisoformat(json.loads(self.erased.details)["deleted_at"])

    @property
    def objects_gone_at(self) -> datetime | None:
        """When that sweep ended; of a person, when they were erased."""
        if self.kind == "person":
            return self.erased.recorded_at
        return None if self.swept is None else self.swept.recorded_at

    @property
    def kind(self) -> str:
        """The kind of the erased thing, as in the name of the act."""
        return self.erased.act.partition(".")[0]

    def backups_until(self, keep_days: float | None) -> datetime | None:
        """Return until when a backup may have it, if they are kept for so many days."""
        if self.objects_gone_at is None or keep_days is None:
            return None
        return self.objects_gone_at + timedelta(days=keep_days)

    def to_json(self, keep_days: float | None) -> dict[str, Any]:
        """Return the receipt as plain values."""
        erased = self.erased.to_json()
        named = "experiment" if self.kind in ("run", "series") else self.kind
        return {
            "kind": self.kind,
            f"{named}_id": self.erased.object_id,
            **{name: each for name, each in erased["details"].items() if name != "deleted_at"},
            "deleted_at": to_text(self.deleted_at),
            "erased_at": erased["recorded_at"],
            "objects_gone_at": to_text(self.objects_gone_at),
            "last_backup_at": to_text(self.backup_at),
            "backups_until": to_text(self.backups_until(keep_days)),
            "erased": erased,
            "swept": None if self.swept is None else self.swept.to_json(),
        }


class AuditFilter(NamedTuple):
    """Conditions on records to list: None for any. `actor` is a person, or what they acted by."""

    act: str | Sequence[str] | None = None
    actor: str | None = None
    object_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def to_text(moment: datetime | None) -> str | None:
    """Return a time in UTC, as in RFC 3339."""
    return None if moment is None else moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
