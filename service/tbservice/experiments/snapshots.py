"""Frozen copies of experiments, for share links that show the data of one moment.

A copy is an experiment of its own, which no listing shows and nobody may write. It has the rows of
one state of its source, and shares the source's blobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth import secrets
from tbservice.auth.tables import suspensions
from tbservice.errors import Conflict, NotFound, TooLarge
from tbservice.experiments.tables import experiment_deletion, snapshots
from tbservice.grouping import group_by_weight
from tbservice.ingest.door import PointWriter
from tbservice.types.grants import AdminGrant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.suspensions import Suspendable, subject_of
from tbwire.points import DataClass

FROZEN_LINKS_ITEMS_MAX: Final = 20
"""Frozen links (items) of an experiment: each is a copy of what it shows."""

KEPT_COPIES_ITEMS_MAX: Final = 1_000
"""Frozen copies (items) of a workspace that have outlasted their experiments; several deletions at
once may keep a few more.
"""

SNAPSHOT_POINTS_MAX: Final = 100_000_000
"""Points of an experiment, or of a slice of it, that a frozen link may copy."""

SNAPSHOT_SECONDS_MAX: Final = 300.0
"""Seconds that the copy of a frozen link may take; it is one transaction."""

SNAPSHOT_CHUNK_POINTS: Final = 5_000_000
"""Scalar points that one statement copies; a statement has 60 s."""

SNAPSHOT_CHUNK_ITEMS: Final = 20_000
"""Tensors and blob sequences that one statement copies, and series."""


def lock_source(writer: PointWriter, grant: AdminGrant) -> None:
    """Keep others from copying the experiment, and from erasing it, until the transaction ends.

    Raises Conflict if another copy of it is being made.
    """
    # Not by waiting for the lock: this transaction would not see the copy that it waited for.
    if not snapshots.try_lock(writer.db, grant.experiment_id):
        raise Conflict("another frozen link of this experiment is being made: try again after it")


def create_snapshot(
    writer: PointWriter, grant: AdminGrant, expires_at: datetime | None
) -> ExperimentId:
    """Copy what the transaction shows of an experiment (`link_views.show`); return the copy's id.

    Uploads and compaction continue meanwhile. The copy is erased when it expires; None for never.
    The transaction is of `Door.copying`, and holds `lock_source`.

    Raises:
        NotFound: The experiment was deleted.
        Conflict: It has `FROZEN_LINKS_ITEMS_MAX` copies.
        TooLarge: It has more than `SNAPSHOT_POINTS_MAX` points, or the copy takes longer than
            `SNAPSHOT_SECONDS_MAX`.
    """
    ends_at = time.monotonic() + SNAPSHOT_SECONDS_MAX
    source = grant.experiment_id
    _check_count(writer.db, source)
    snapshot = snapshots.choose_id(writer.db, source, secrets.generate_experiment_id)
    if not snapshots.create(writer.db, source, snapshot, expires_at):
        raise NotFound("there is no such experiment, or it is not yours")
    counts = writer.copy_series(source, snapshot)
    _check_points(sum(count for _, _, count in counts))
    writer.copy_points(grant, snapshot, _until(ends_at, _chunks(counts)))
    return snapshot


def count_copies(db: Connection, grant: AdminGrant) -> int:
    """Return how many frozen copies an experiment has, which are deleted with it, or kept."""
    return snapshots.count(db, grant.experiment_id)


def keep_copies(db: Connection, grant: AdminGrant) -> int:
    """Let the frozen copies of an experiment outlast it, each until its link ends; return how many.

    Raises Conflict while one is being made, which would not be among them, if the sharing of the
    experiment is suspended, which would no longer hold for them, and if the workspace would have
    more than `KEPT_COPIES_ITEMS_MAX`.
    """
    source = grant.experiment_id
    if not snapshots.try_lock(db, source):
        raise Conflict("a frozen link of this experiment is being made: try again after it")
    if suspensions.find_broadest(db, [subject_of(Suspendable.EXPERIMENT, source)]) is not None:
        raise Conflict(
            "the sharing of this experiment is suspended: its frozen copies can only be deleted "
            "with it"
        )
    delete_unused(db, source)
    kept = snapshots.keep(db, source)
    if kept and snapshots.count_kept(db, grant.workspace_id) > KEPT_COPIES_ITEMS_MAX:
        raise Conflict(
            f"a workspace keeps at most {KEPT_COPIES_ITEMS_MAX:,} frozen copies of deleted "
            "experiments (kept_copies_items_max): revoke the links of some first"
        )
    return kept


def delete_late(db: Connection, source: ExperimentId) -> bool:
    """Delete the copies that were committed after the deletion of their source; was there one?"""
    return experiment_deletion.hide_late_snapshots(db, source)


def delete_snapshot(db: Connection, snapshot: ExperimentId) -> None:
    """Hide a copy from everybody, at once; the background work erases it soon. Idempotent."""
    experiment_deletion.hide(db, snapshot, timedelta())


def delete_unused(db: Connection, source: ExperimentId) -> None:
    """Delete a few copies of an experiment whose links have ended."""
    for snapshot in snapshots.list_unused(db, source, limits.TOKEN_SWEEP_ITEMS_MAX):
        delete_snapshot(db, snapshot)


def _check_count(db: Connection, source: ExperimentId) -> None:
    if snapshots.count(db, source) >= FROZEN_LINKS_ITEMS_MAX:
        limit = f"{FROZEN_LINKS_ITEMS_MAX} frozen links (frozen_links_items_max)"
        raise Conflict(
            f"an experiment has at most {limit}, each with a copy of its data: revoke one that is "
            "not needed"
        )


def _check_points(count: int) -> None:
    if count > SNAPSHOT_POINTS_MAX:
        limit = f"the limit of {SNAPSHOT_POINTS_MAX} points (snapshot_points_max)"
        raise TooLarge(f"{count} points are over {limit} of a copy; freeze fewer runs or tags")


def _until(
    ends_at: float, chunks: Iterable[tuple[DataClass, list[int]]]
) -> Iterator[tuple[DataClass, list[int]]]:
    """Yield the chunks. Raises TooLarge once copying one of them has ended too late."""
    for chunk in chunks:
        yield chunk
        if time.monotonic() > ends_at:
            limit = f"the limit of {SNAPSHOT_SECONDS_MAX:g} s (snapshot_seconds_max)"
            raise TooLarge(f"copying the data takes longer than {limit}; freeze fewer runs or tags")


def _chunks(counts: list[tuple[int, int, int]]) -> Iterator[tuple[DataClass, list[int]]]:
    """Yield the series of each statement: of one data class, and not too many points."""
    for data_class in DataClass:
        is_scalar = data_class is DataClass.SCALAR
        points_max = SNAPSHOT_CHUNK_POINTS if is_scalar else SNAPSHOT_CHUNK_ITEMS
        of_class = (row for row in counts if row[0] == data_class)
        for rows in group_by_weight(of_class, lambda row: row[2], points_max, SNAPSHOT_CHUNK_ITEMS):
            yield data_class, [series_id for _, series_id, _ in rows]
