"""Count what is stored, in the transaction that stores it, and refuse what is over a quota."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from tbservice.db.pipeline import PendingResult
from tbservice.errors import NotFound
from tbservice.experiments.tables import experiment_size
from tbservice.objects.tables import blobs
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.quotas import room
from tbservice.quotas.tables import usage_counters
from tbservice.types.grants import ExperimentGrant
from tbservice.types.quotas import Usage


def settle(
    db: Connection, grant: ExperimentGrant, added: Usage, charged: PendingResult | None
) -> None:
    """Finish `usage_counters.charge`, which has counted `added` if it has a row.

    `charged` is None without the tables, and for what adds nothing. Points of `added` are stored,
    the row of the experiment is locked. Raises QuotaExceeded.
    """
    if charged is None or charged.rows():
        return
    _create_counter(db, grant, added)
    room.make_room(db, grant.workspace_id, grant.experiment_id, added)
    # In a statement that looks at the maxima again: they were set a moment ago.
    is_charged = usage_counters.charge(db, grant.experiment_id, added).rows()
    assert is_charged, "the counter has room, and is locked"  # noqa: S101 - see make_room


def count_again(db: Connection, grant: ExperimentGrant) -> Usage | None:
    """Count all points of an experiment again, after some were deleted. Locks its row.

    Returns what is gone, blobs excepted; None if it was not counted before.
    """
    if not usage_counters.exist(db):
        return None
    usage_counters.lock_experiment(db, grant.experiment_id)
    known = usage_counters.find(db, grant.experiment_id)
    usage = experiment_size.measure_usage(db, grant.experiment_id)
    usage = usage._replace(blob_bytes=0 if known is None else known.blob_bytes)
    usage_counters.create(db, grant.workspace_id, grant.experiment_id, usage)
    return None if known is None else known.minus(usage)


def reserve_copy(db: Connection, grant: ExperimentGrant, counter_id: str, seconds: float) -> None:
    """Reserve room for a copy of an experiment, under this id. Raises as `reserve_blobs`."""
    if usage_counters.find(db, grant.experiment_id) is None:
        _lock(db, grant)
        _create_counter(db, grant, Usage())
    room.reserve_copy(db, grant.workspace_id, grant.experiment_id, counter_id, seconds)


def reserve_blobs(db: Connection, grant: ExperimentGrant, size: int) -> None:
    """Let the experiment store new blobs of `size` bytes, before their objects are stored.

    They are counted by `record_blobs`. Raises QuotaExceeded, and NotFound if the experiment was
    deleted.
    """
    if not size or not usage_counters.exist(db):
        return
    if not usage_counters.has_room_for_blobs(db, grant.experiment_id, size):
        _lock(db, grant)
        _create_counter(db, grant, Usage())
        room.make_room(db, grant.workspace_id, grant.experiment_id, Usage(blob_bytes=size))


def record_blobs(
    db: Connection, grant: ExperimentGrant, stored: Sequence[StoredBlob]
) -> set[bytes]:
    """Record that these objects exist, and count the blobs that had no row.

    Returns the SHA-256s of these. Raises as `reserve_blobs`.
    """
    recorded = blobs.record(db, grant.workspace_id, stored)
    _charge_blobs(db, grant, sum(blob.size for blob in stored if blob.sha256 in recorded))
    return recorded


def _charge_blobs(db: Connection, grant: ExperimentGrant, size: int) -> None:
    """Count `size` bytes of blobs that this transaction has recorded."""
    if not size or not usage_counters.exist(db):
        return
    added = Usage(blob_bytes=size)
    if not usage_counters.charge(db, grant.experiment_id, added).rows():
        _lock(db, grant)
        settle(db, grant, added, usage_counters.charge(db, grant.experiment_id, added))


def _lock(db: Connection, grant: ExperimentGrant) -> None:
    """Lock the row of the experiment, as a batch does. Raises NotFound if it was deleted."""
    if not usage_counters.lock_experiment(db, grant.experiment_id):
        raise NotFound("the experiment has been deleted")


def _create_counter(db: Connection, grant: ExperimentGrant, added: Usage) -> None:
    """Create the counter of an experiment that has none; `added` is yet to be counted."""
    if usage_counters.find(db, grant.experiment_id) is None:
        stored = experiment_size.measure_usage(db, grant.experiment_id)
        before = stored.minus(added)
        usage_counters.create(
            db, grant.workspace_id, grant.experiment_id, before._replace(blob_bytes=0)
        )
