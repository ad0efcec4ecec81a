"""Observers of the door: work for all stored points, whichever way they came.

`server/app.py` hands them to the door. One that is slow, or fails, is slow or fails for all points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from tbservice import metrics
from tbservice.experiments.tables.experiment_size import Size
from tbservice.ingest.series_updates import SeriesUpdate
from tbservice.ingest.series_writer import Counts
from tbservice.series.compaction_thresholds import group_pending_runs
from tbservice.series.compactor import Compactor
from tbservice.types.grants import ExperimentGrant
from tbservice.types.identifiers import ExperimentId


@dataclass(frozen=True, slots=True)
class StoredPoints:
    """Points that one transaction stored in one experiment, superseded ones included.

    `grant` is on the experiment that has them now; its `user_id` is the person who stored them.
    `updates` says what was added to each series; of a frozen copy, only the size is known.
    """

    grant: ExperimentGrant
    size: Size
    counts: Counts = field(default_factory=Counts)
    updates: Sequence[SeriesUpdate] = ()


class PointObserver:
    """Does something for all stored points. Both methods do nothing unless they are replaced."""

    def before_commit(self, db: Connection, stored: StoredPoints) -> None:
        """Write or check something in the transaction, as its last statements.

        An error rolls the points back, and is that of the request. The rows of the experiment and
        of its series are locked: every statement here delays the next batch of the experiment. The
        transaction of a frozen copy is REPEATABLE READ: an update of a row that others have written
        meanwhile raises Unavailable there.
        """

    def after_commit(self, stored: StoredPoints) -> None:
        """Do something that needs no transaction, once the points are committed; never raises."""


class PointMetrics(PointObserver):
    """Count the points that were sent. Copies are not."""

    def after_commit(self, stored: StoredPoints) -> None:
        """Count points and blobs by data class."""
        counts = stored.counts
        metrics.observe_points(counts.scalars, counts.tensors, counts.blobs)


@dataclass(frozen=True, slots=True)
class CompactionQueue(PointObserver):
    """Queue the runs in which points have left something to compact."""

    compactor: Compactor

    def after_commit(self, stored: StoredPoints) -> None:
        """Queue runs by when they are to be compacted."""
        rows = [update.row for update in stored.updates if update.accepted]
        self.compactor.enqueue(stored.grant, group_pending_runs(rows))


@dataclass(frozen=True, slots=True)
class LiveTails(PointObserver):
    """Tell those who follow an experiment in this worker that it has changed."""

    note_commit: Callable[[ExperimentId], None]

    def after_commit(self, stored: StoredPoints) -> None:
        """Name the experiment."""
        self.note_commit(stored.grant.experiment_id)
