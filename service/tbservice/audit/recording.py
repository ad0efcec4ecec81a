"""Record an act: in the transaction of the act itself, as the last thing before its COMMIT.

If the record cannot be written, neither is the act. The ends of chains are locked for the COMMIT
alone, in the order of their workspaces.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy import Connection

from tbservice.audit.acting import Acting, Means, get_acting
from tbservice.audit.acts import (
    ALWAYS_RECORDED,
    AUDIT_DAY_ITEMS_MAX,
    AUDIT_DETAIL_CHARS_MAX,
    AUDIT_EXPORTS_ITEMS_MAX,
    AUDIT_PERSON_DAY_ITEMS_MAX,
    SIGN_IN_FAILURES_ITEMS_MAX,
    SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX,
    Act,
)
from tbservice.audit.chain import compute_digest
from tbservice.audit.tables import audit_records
from tbservice.db import before_commit
from tbservice.db.database import Database
from tbservice.db.pipeline import set_locals, transaction_of_driver
from tbservice.errors import Conflict
from tbservice.metrics import observe_sign_in_failure
from tbservice.types.audit import EPOCH, AuditRecord, ChainHead
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import WorkspaceId

NO_WORKSPACE: Final = WorkspaceId(0)
"""Workspace of acts that are of none: sign-ins, and administrators' commands."""

EXPORT_RECORD_SECONDS: Final = 24 * 3600
"""Seconds in which an export of an experiment is recorded once for who, by what and from where."""

KNOWN_USE_SECONDS: Final = 3600
"""Seconds after which a process looks again whether a use is recorded: records expire."""

_KNOWN_USES_ITEMS_MAX: Final = 20_000
"""Uses (items) that a process knows to be recorded."""

_NOT_COUNTED: Final = ALWAYS_RECORDED | {
    Act.EXPERIMENT_EXPORT,
    Act.TOKEN_NETWORK,
    Act.LINK_NETWORK,
    Act.SIGN_IN_FAIL,
}
"""Acts that no limit of a day refuses: some have limits of their own."""

_ONCE: Final = {Act.TOKEN_REVOKE, Act.LINK_REVOKE, Act.INVITATION_REVOKE}
"""Acts that an object is done to once; the request for it may be repeated."""

Detail = str | int | bool | None
"""A value in the details of an act."""


class _Pending:
    """The acts of one transaction, which are recorded before its COMMIT."""

    def __init__(self) -> None:
        self.entries: dict[int, list[AuditRecord]] = defaultdict(list)

    def __call__(self, db: Connection) -> None:
        """Record the acts. Raises Conflict if a workspace has too many in a day."""
        for workspace_id, entries in sorted(self.entries.items()):
            _append(db, workspace_id, entries, *audit_records.lock_chain(db, workspace_id))


def record(
    db: Connection,
    act: Act,
    workspace_id: WorkspaceId | None,
    object_id: str = "",
    **details: Detail,
) -> None:
    """Record an act of who acts, when the transaction of the act is committed.

    Before the migration that adds the table, nothing is recorded.

    Args:
        db: The transaction of the act, of `Database.transaction`.
        act: What is done.
        workspace_id: Whose owners see it; None: administrators alone.
        object_id: What it is done to.
        details: More of it: no secrets; texts are cut.

    Raises:
        LookupError: `db` is no such transaction.
    """
    pending = before_commit.get_or_add(db, _Pending)
    if audit_records.exist(db):
        entry = _make_entry(act, get_acting(), object_id, details)
        pending.entries[workspace_id or NO_WORKSPACE].append(entry)


_KNOWN_USES: Final[OrderedDict[tuple[str, ...], float]] = OrderedDict()
"""Uses that this process knows to be recorded, and until when (seconds, monotonic)."""


def is_known_use(act: Act, object_id: str) -> bool:
    """Return whether this process knows that this use, by who acts now, is recorded."""
    return _KNOWN_USES.get(_key_of_use(act, object_id), 0.0) > time.monotonic()


def _key_of_use(act: Act, object_id: str) -> tuple[str, ...]:
    acting = get_acting()
    return act, object_id, acting.means_id, acting.network


def record_use(
    db: Connection,
    act: Act,
    workspace_id: WorkspaceId,
    object_id: str,
    items_max: int,
    seconds: int | None = None,
) -> None:
    """Record that something is used, once for who uses it, by what, and from which network.

    In a transaction of its own; in an open one, as a part of it.

    Args:
        db: A connection; it needs no transaction.
        act: The use.
        workspace_id: Whose owners see it.
        object_id: What is used.
        items_max: Records (items) of this act and object at most: others are left out.
        seconds: After which a use is recorded again, and others are not counted any more; None: as
            long as records are kept.
    """
    if not audit_records.exist(db):
        return
    acting = get_acting()
    with transaction_of_driver(db):
        head, now = audit_records.lock_chain(db, workspace_id)
        # Under the lock: of several processes that see the first use, one records it.
        since = None if seconds is None else now - timedelta(seconds=seconds)
        of: dict[str, str] = {"act": act, "object_id": object_id}
        by = {"means_id": acting.means_id, "network": acting.network}
        count = partial(audit_records.count, db, workspace_id, since=since)
        if not count(1, of | by) and count(items_max, of) < items_max:
            _append(db, workspace_id, [_make_entry(act, acting, object_id, {})], head, now)
    key = _key_of_use(act, object_id)
    _KNOWN_USES[key] = time.monotonic() + (seconds or KNOWN_USE_SECONDS)
    _KNOWN_USES.move_to_end(key)
    while len(_KNOWN_USES) > _KNOWN_USES_ITEMS_MAX:
        _KNOWN_USES.popitem(last=False)


def record_export(database: Database, grant: ExperimentGrant) -> None:
    """Record that somebody begins to read all points of an experiment, once a day."""
    use = Act.EXPERIMENT_EXPORT, grant.workspace_id, grant.experiment_id
    if not is_known_use(Act.EXPERIMENT_EXPORT, grant.experiment_id):
        with database.without_transaction() as db:
            record_use(db, *use, AUDIT_EXPORTS_ITEMS_MAX, EXPORT_RECORD_SECONDS)


def count_of_network(
    db: Connection,
    act: Act,
    seconds: int,
    items_max: int,
    workspace_id: WorkspaceId = NO_WORKSPACE,
) -> int:
    """Return how often an act was done from the network of who acts in a workspace, of late.

    At most `items_max`. Acts of administrators have no network. In a transaction of the workspace;
    with none, it then sees what is of no workspace.
    """
    network = get_acting().network
    if not (network and audit_records.exist(db)):
        return 0
    if workspace_id == NO_WORKSPACE:
        set_locals(db, {"tbhub.workspace_id": str(NO_WORKSPACE)})
    of: dict[str, str] = {"act": act, "network": network}
    return audit_records.count(db, workspace_id, items_max, of, timedelta(seconds=seconds))


def record_sign_in_failure(database: Database, reason: str) -> None:
    """Record a failed sign-in, unless enough of its network or of all were in the last hour.

    Then it is only counted by a metric.
    """
    is_recorded = False
    with database.transaction() as db:
        if audit_records.exist(db):
            head, now = audit_records.lock_chain(db, NO_WORKSPACE)
            entry = _make_entry(
                Act.SIGN_IN_FAIL, get_acting(), get_acting().network, {"reason": reason}
            )
            of: dict[str, str] = {"act": entry.act}
            count = partial(audit_records.count, db, NO_WORKSPACE, since=now - timedelta(hours=1))
            per_network = SIGN_IN_FAILURES_PER_NETWORK_ITEMS_MAX
            is_recorded = (
                count(per_network, {**of, "object_id": entry.object_id}) < per_network
                and count(SIGN_IN_FAILURES_ITEMS_MAX, of) < SIGN_IN_FAILURES_ITEMS_MAX
            )
            if is_recorded:
                _append(db, NO_WORKSPACE, [entry], head, now)
    observe_sign_in_failure(is_recorded=is_recorded)


def _append(
    db: Connection, workspace_id: int, entries: list[AuditRecord], head: ChainHead, now: datetime
) -> None:
    """Append records to a chain that is locked. Raises Conflict."""
    entries = [entry for entry in entries if not _is_repeated(db, workspace_id, entry)]
    day = (now - EPOCH).days
    counted = [entry for entry in entries if entry.act not in _NOT_COUNTED]
    day_items = len(counted) + (head.day_items if head.day == day else 0)
    if workspace_id == NO_WORKSPACE:
        _check_person_day(db, counted, now)
    elif counted and day_items > AUDIT_DAY_ITEMS_MAX:
        raise Conflict(
            f"the workspace has {AUDIT_DAY_ITEMS_MAX} acts in its audit log today, the most there "
            "can be: try again tomorrow (UTC); what ends a right is still possible",
            code="audit_full",
        )
    records, number, digest = [], head.number, head.digest
    for number, entry in enumerate(entries, head.number + 1):
        made = entry._replace(number=number, recorded_at=now)
        digest = compute_digest(digest, workspace_id, made)
        records.append(made._replace(digest=digest))
    audit_records.append(db, workspace_id, records, ChainHead(number, digest, day, day_items))


def _is_repeated(db: Connection, workspace_id: int, entry: AuditRecord) -> bool:
    """Return whether an act that can be done once is recorded: others may repeat the request."""
    return entry.act in _ONCE and bool(
        audit_records.count(db, workspace_id, 1, {"act": entry.act, "object_id": entry.object_id})
    )


def _check_person_day(db: Connection, entries: list[AuditRecord], now: datetime) -> None:
    """Raise Conflict if a person has done too much of this today. Commands may do more."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    items_max = AUDIT_PERSON_DAY_ITEMS_MAX
    for entry in entries:
        of = {"act": entry.act, "object_id": entry.object_id}
        if (
            entry.means != Means.COMMAND
            and audit_records.count(db, NO_WORKSPACE, items_max, of, today) >= items_max
        ):
            raise Conflict(
                f"this was done {items_max} times today for one person, the most there can be in a "
                "day: try again tomorrow (UTC)",
                code="audit_full",
            )


def _make_entry(
    act: Act, acting: Acting, object_id: str, details: Mapping[str, Detail]
) -> AuditRecord:
    """Return a record without what its chain gives it: number, time and digest."""
    bounded = {
        name: clean(content) if isinstance(content, str) else content
        for name, content in details.items()
        if content is not None
    }
    return AuditRecord(
        0,
        EPOCH,
        act,
        acting.user_id,
        acting.means,
        acting.means_id,
        clean(acting.network),
        acting.request_id,
        clean(object_id),
        json.dumps(bounded, ensure_ascii=False, separators=(",", ":")),
        digest=b"",
    )


def clean(content: str) -> str:
    """Return a text that PostgreSQL stores and UTF-8 encodes, cut."""
    stored = content.replace("\0", "").encode("utf-8", "replace").decode()
    return stored[:AUDIT_DETAIL_CHARS_MAX]
