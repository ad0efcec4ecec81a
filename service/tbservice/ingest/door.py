"""The one way in for points: plan, write, count, and tell the observers.

Batches, sessions, the logs of Katib's trials and frozen copies all store points through a
`PointWriter`. No other module calls what inserts points; a tidy test holds that. Compaction, which
rewrites stored points, is no way in.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from tbservice.db.database import Database
from tbservice.db.pipeline import pipeline
from tbservice.errors import NotFound
from tbservice.experiments.tables import experiment_size, experiments, snapshots
from tbservice.ingest import charges, series_writer
from tbservice.ingest.batch_size import measure_growth, measure_updates
from tbservice.ingest.observers import PointObserver, StoredPoints
from tbservice.ingest.series_updates import IncomingBySeries, SeriesUpdate
from tbservice.objects.tables import blobs, object_references
from tbservice.quotas.tables import usage_counters
from tbservice.series.tables import upload_streams
from tbservice.series.tables.upload_streams import CursorMove
from tbservice.types.grants import AppendGrant, ExperimentGrant, Grant
from tbservice.types.identifiers import ExperimentId
from tbservice.types.quotas import NOTHING, Usage
from tbwire.points import DataClass

COPY_RESERVED_SECONDS: Final = 900.0
"""Seconds for which room for a frozen copy is reserved, if its process is killed: longer than
`SNAPSHOT_SECONDS_MAX` and the last statement of a copy.
"""

_COPIED_TABLES: Final = {
    DataClass.SCALAR: ("scalar_tail", "scalar_blocks"),
    DataClass.TENSOR: ("tensor_points",),
    DataClass.BLOB_SEQUENCE: ("blob_points",),
}


@dataclass(frozen=True, slots=True)
class PointWriter:
    """Stores points in one transaction, `db`, and notes what was stored."""

    db: Connection
    stored: list[StoredPoints] = field(default_factory=list)
    reservation: str | None = None
    """Counter that has reserved room for a frozen copy."""

    def plan(self, grant: AppendGrant, incoming: IncomingBySeries) -> list[SeriesUpdate]:
        """Create the series that are new, lock the others, and plan their updates.

        All that changes something must be given to `write`. Raises as
        `series_writer.lock_or_create`.
        """
        return series_writer.lock_or_create(self.db, grant, incoming) if incoming else []

    def write(
        self,
        grant: AppendGrant,
        updates: Sequence[SeriesUpdate],
        moves: Sequence[CursorMove] = (),
        kept: Usage = NOTHING,
        *,
        is_rewrite: bool = False,
    ) -> set[bytes]:
        """Insert points, move cursors, and increment the version of the experiment.

        The last two lock the rows that other requests wait for most, so they come last.

        Args:
            grant: Grant on the experiment.
            updates: What `plan` has returned.
            moves: Cursors to move.
            kept: Superseded points that this transaction has stored for these updates.
            is_rewrite: The transaction has deleted points, these among them: no quota refuses it.

        Returns:
            The digests of moved streams.

        Raises:
            NotFound: The experiment was deleted.
            QuotaExceeded: The workspace has no room for what this adds.
        """
        tensor_bytes = series_writer.insert_tensors_and_blobs(self.db, grant, updates)
        size = measure_updates(updates)
        added = measure_growth(updates, tensor_bytes).plus(kept)
        is_charged = any(added) and not is_rewrite and usage_counters.exist(self.db)
        # One round trip for all: https://www.postgresql.org/docs/18/libpq-pipeline-mode.html
        # (decision 10).
        with pipeline(self.db):
            series_writer.insert_scalars(self.db, grant, updates)
            moved = upload_streams.move_cursors(self.db, grant, moves) if moves else None
            version = experiments.bump_version(
                self.db, grant.experiment_id, size.points, size.bytes
            )
            charged = (
                usage_counters.charge(self.db, grant.experiment_id, added) if is_charged else None
            )
        # The UPDATE finds no row of a deleted experiment: no lock was needed to notice it.
        if not version.rows():
            raise NotFound("the experiment has been deleted")
        charges.settle(self.db, grant, added, charged)
        if is_rewrite:
            charges.count_again(self.db, grant)
        counts = series_writer.count_points(updates)
        self.stored.append(StoredPoints(grant, size, counts, updates))
        return {digest for (digest,) in moved.rows()} if moved is not None else set()

    def copy_series(self, source: ExperimentId, copy: ExperimentId) -> list[tuple[int, int, int]]:
        """Copy runs, tags and series that the transaction shows, with their inline buffers.

        Returns data class, series id and number of points of each, for `copy_points`.
        """
        snapshots.copy_series(self.db, source, copy)
        return snapshots.list_counts(self.db, copy)

    def copy_points(
        self,
        source: ExperimentGrant,
        copy: ExperimentId,
        chunks: Iterable[tuple[DataClass, Sequence[int]]],
    ) -> None:
        """Copy the other points of the series, one chunk of series ids after the other."""
        for data_class, series_ids in chunks:
            for table in _COPIED_TABLES[data_class]:
                snapshots.copy_points(self.db, table, source.experiment_id, copy, series_ids)
            if data_class in object_references.REFERRING_CLASSES:
                digests = object_references.list_all_digests(self.db, copy, series_ids)
                # PostgreSQL aborts a copy of references to what was deleted since it began.
                blobs.hold(self.db, source.workspace_id, digests)
        size = experiment_size.measure(self.db, copy)
        experiments.set_size(self.db, copy, *size)
        if self.reservation is not None:
            usage_counters.end_reservation(self.db, self.reservation)
            usage = experiment_size.measure_usage(self.db, copy)._replace(blob_bytes=0)
            usage_counters.create(self.db, source.workspace_id, copy, usage)
        self.stored.append(StoredPoints(replace(source, experiment_id=copy), size))


@dataclass(frozen=True, slots=True)
class Door:
    """Opens the transactions in which points are stored."""

    database: Database
    observers: Sequence[PointObserver]

    def transaction(self, grant: Grant) -> AbstractContextManager[PointWriter]:
        """Open a transaction as `Database.transaction` does, for points and all else."""
        return self._tell(self.database.transaction(grant))

    @contextmanager
    def copying(self, grant: ExperimentGrant) -> Iterator[PointWriter]:
        """Open a transaction as `Database.copying` does, for a copy of the experiment.

        Room for all of it is reserved before, in a transaction that sees what others store. Raises
        QuotaExceeded.
        """
        reservation = self._reserve_copy(grant)
        try:
            with self._tell(self.database.copying(grant), reservation) as writer:
                yield writer
        finally:  # of a copy that was made, nothing is left of it
            if reservation is not None:
                with self.database.transaction(grant) as db:
                    usage_counters.end_reservation(db, reservation)

    def _reserve_copy(self, grant: ExperimentGrant) -> str | None:
        with self.database.transaction(grant) as db:
            if not usage_counters.exist(db):
                return None
            reservation = f"copy/{secrets.token_hex(16)}"
            charges.reserve_copy(db, grant, reservation, COPY_RESERVED_SECONDS)
        return reservation

    @contextmanager
    def _tell(
        self, transaction: AbstractContextManager[Connection], reservation: str | None = None
    ) -> Iterator[PointWriter]:
        """Tell the observers what was stored: at the end of the transaction, and after it."""
        with transaction as db:
            writer = PointWriter(db, reservation=reservation)
            yield writer
            for stored in writer.stored:
                for observer in self.observers:
                    # Last in the transaction, so that an observer's locks are held for as short a
                    # time as possible.
                    observer.before_commit(db, stored)
        for stored in writer.stored:
            for observer in self.observers:
                observer.after_commit(stored)
