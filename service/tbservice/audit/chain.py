"""The chain of digests that the records of each workspace form.

Each digest covers the record and the digest before it. To change or remove a record, all
later digests must be computed again, and then differ from every one that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import timedelta

from tbservice.audit.acts import Act
from tbservice.types.audit import EPOCH, FIRST_DIGEST, AuditRecord, ChainHead


def compute_digest(previous: bytes, workspace_id: int, record: AuditRecord) -> bytes:
    """Return the SHA-256 of the digest before it and of all else that the record has.

    The bytes are `previous`, then a JSON array without spaces, in UTF-8: workspace (0: none),
    number, microseconds since 1970 (UTC), and the texts in the order of the columns.
    """
    microseconds = (record.recorded_at - EPOCH) // timedelta(microseconds=1)
    content = [workspace_id, record.number, microseconds, *record[2:-1]]
    encoded = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return hashlib.sha256(previous + encoded).digest()


def find_breaks(
    workspace_id: int, records: Iterable[AuditRecord], head: ChainHead
) -> Iterator[str]:
    """Yield what is wrong with a chain, whose records come in the order of their numbers.

    The first ones may have expired: then a later record, of `audit.expire`, has the number and the
    digest of the last that is gone.
    """
    first: AuditRecord | None = None
    number, digest = 0, FIRST_DIGEST
    is_anchored = False
    for record in records:
        if first is None:
            first = record
            is_anchored = record.number == 1
        elif record.number != number + 1:
            yield f"between the records {number} and {record.number}, some are missing"
        is_next = record.number == number + 1
        if is_next and compute_digest(digest, workspace_id, record) != record.digest:
            yield f"record {record.number} is not as it was recorded, or the one before it"
        if not is_anchored and record.act == Act.AUDIT_EXPIRE:
            is_anchored = _is_anchor(record, workspace_id, first)
        number, digest = record.number, record.digest
    if first is not None and not is_anchored:
        yield f"the records before {first.number} are missing, and no expiry has their digest"
    if (number, digest) != (head.number, head.digest):
        yield f"the last record is {number}; the chain ended with {head.number}"


def _is_anchor(expiry: AuditRecord, workspace_id: int, first: AuditRecord) -> bool:
    """Return whether the record of an expiry has the digest before the first that is left."""
    details = json.loads(expiry.details)
    if details.get("last_number") != first.number - 1:
        return False
    last_digest = bytes.fromhex(details["last_digest"])
    return compute_digest(last_digest, workspace_id, first) == first.digest
