"""Values of the audit log: its records, the ends of chains, and what a list is filtered by."""

from __future__ import annotations

import json
from datetime import UTC, datetime
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
            "recorded_at": self.recorded_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
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


class AuditFilter(NamedTuple):
    """Conditions on records to list: None for any. `actor` is a person, or what they acted by."""

    act: str | None = None
    actor: str | None = None
    object_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
