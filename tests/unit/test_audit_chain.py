"""The chain of the audit log: each change of a record, and each one missing, is found."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest

from tbservice.audit.acts import Act
from tbservice.audit.chain import compute_digest, find_breaks
from tbservice.types.audit import FIRST_DIGEST, AuditRecord, ChainHead

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def make_chain(count, *, expiry=None):
    """Return records, and the end of their chain; the last one is an expiry up to a number."""
    records, digest = [], FIRST_DIGEST
    for number in range(1, count + 1):
        details, act = "{}", Act.TOKEN_CREATE
        if expiry and number == count:
            act = Act.AUDIT_EXPIRE
            last = records[expiry - 1].digest.hex()
            details = json.dumps({"last_number": expiry, "last_digest": last})
        at = BEGIN + timedelta(seconds=number)
        made = AuditRecord(number, at, act, "u", "token", "t", "::1", "r", "o", details, b"")
        digest = compute_digest(digest, 7, made)
        records.append(made._replace(digest=digest))
    return records, ChainHead(count, digest)


def test_whole_chain_has_no_breaks():
    assert list(find_breaks(7, *make_chain(5))) == []
    assert list(find_breaks(7, [], ChainHead())) == []


def test_chain_is_of_one_workspace():
    assert list(find_breaks(8, *make_chain(2)))


@pytest.mark.parametrize("field", [name for name in AuditRecord._fields if name != "digest"])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_change_of_a_record_is_found(field, place):
    records, head = make_chain(5)
    before = getattr(records[place], field)
    changed = before + timedelta(microseconds=1) if field == "recorded_at" else before * 2
    if isinstance(before, int):
        changed = before + 10
    records[place] = records[place]._replace(**{field: changed})
    assert list(find_breaks(7, records, head))


@pytest.mark.parametrize("place", range(5))
def test_missing_record_is_found(place):
    records, head = make_chain(5)
    del records[place]
    assert list(find_breaks(7, records, head))


def test_expired_beginning_has_an_anchor():
    records, head = make_chain(6, expiry=3)
    assert list(find_breaks(7, records[3:], head)) == []
    assert list(find_breaks(7, records[2:], head)) != []
    assert list(find_breaks(7, records[4:], head)) != []
    forged = records[3]._replace(user_id="v")
    assert list(find_breaks(7, [forged, *records[4:]], head))


def test_digest_is_that_of_its_documentation():
    ((record,), _) = make_chain(1)
    content = '[7,1,1769860801000000,"token.create","u","token","t","::1","r","o","{}"]'
    assert record.digest == hashlib.sha256(bytes(32) + content.encode()).digest()
