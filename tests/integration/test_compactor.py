"""When the merging thread takes a run up: at a pause of its batches, or at once when too much has
come in.
"""

from __future__ import annotations

import time
from contextlib import contextmanager

import numpy as np
import pytest
from sqlalchemy import text

from support.uploading import wait_until
from tbservice import limits
from tbservice.auth.workspaces import create_workspace
from tbservice.experiments.lifecycle import create_experiment
from tbservice.ingest.batch import Segment, SentMetadata, SentSeries
from tbservice.ingest.commit import write_batch
from tbservice.metrics import REGISTRY
from tbservice.scalars import compactor as merger
from tbservice.scalars.compaction_backlog import find_backlog
from tbservice.scalars.compaction_thresholds import PendingRuns
from tbservice.store import compaction_backlog
from tbservice.types import AppendGrant, Stream, WorkspaceGrant
from tbwire.points import DataClass, ScalarPoints

pytestmark = pytest.mark.own_database

METADATA = SentMetadata("scalars", DataClass.SCALAR, b"")
SECONDS_MAX = 60


class Experiment:
    """An experiment whose batches a merger is told of."""

    def __init__(self, database):
        self.database = database
        self.merger = merger.Compactor(database)
        with database.transaction() as db:
            workspace_id = create_workspace(db, "merger")
        with database.transaction(workspace_id) as db:
            experiment = create_experiment(db, WorkspaceGrant(workspace_id))
        self.grant = AppendGrant(workspace_id, experiment.experiment_id)
        self.offsets = {}

    def write(self, run, count, *, is_noticed=True):
        """Adds so many points to the one series of the run, and tells the merger unless it is not
        to know.
        """
        start = self.offsets.get(run, 0)
        end = self.offsets[run] = start + count
        steps = np.arange(start, end)
        series = SentSeries("tag", METADATA, ScalarPoints(steps, 1.7e9 + steps, steps / 3))
        segment = Segment(
            0, Stream(run, "f", bytes(32), 0, bytes(32)), start, end, start, end, [series], {}, 0.0
        )
        with self.database.transaction(self.grant.workspace_id) as db:
            outcome = write_batch(db, self.grant, [segment])
        if is_noticed:
            self.merger.enqueue(self.grant, outcome.pending)

    def wake(self):
        self.merger.enqueue(self.grant, PendingRuns())

    def merged(self):
        """The runs that have nothing left to merge."""
        with self.database.snapshot(self.grant.workspace_id) as db:
            return set(
                db.execute(
                    text(
                        "SELECT name FROM runs JOIN time_series USING (experiment_id, run_id) WHERE tail_points = 0"
                    )
                ).scalars()
            )

    def wait_until_merged(self, *runs):
        deadline = time.monotonic() + SECONDS_MAX
        while self.merged() != set(runs):
            assert time.monotonic() < deadline, (self.merged(), runs)
            time.sleep(0.02)


@pytest.fixture
def experiment(database):
    experiment = Experiment(database)
    experiment.merger.start()
    yield experiment
    experiment.merger.stop()


def test_compaction_waits_for_pause_unless_urgent(experiment, monkeypatch):
    monkeypatch.setattr(merger, "PAUSE_SECONDS", 3600.0)
    experiment.write("busy", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.write("full", 4 * limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wait_until_merged("full")
    experiment.write("full", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wake()
    assert experiment.merged() == set()
    monkeypatch.setattr(merger, "PAUSE_SECONDS", 0.0)
    experiment.wake()
    experiment.wait_until_merged("busy", "full")


def test_run_that_is_not_due_is_settled_when_it_has_come_to_rest(experiment, monkeypatch):
    monkeypatch.setattr(merger, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(merger, "IDLE_SECONDS", 3600.0)
    experiment.write("small", limits.PACKED_POINTS_MIN)
    experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wait_until_merged("due")
    monkeypatch.setattr(merger, "IDLE_SECONDS", 0.0)
    experiment.wake()
    experiment.wait_until_merged("due", "small")


@pytest.fixture
def left_unmerged(database):
    """Experiments of two workspaces, each with a due and a small run that no living process knows
    of.
    """
    left = [Experiment(database), Experiment(database)]
    for experiment in left:
        experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX, is_noticed=False)
        experiment.write("small", limits.PACKED_POINTS_MIN, is_noticed=False)
    return left


@contextmanager
def starting(merger):
    """A merger that has just started, while the block lasts."""
    merger.start()
    try:
        yield
    finally:
        merger.stop()


def waiting_runs():
    """What the metrics tell: runs that are due, and runs at rest."""
    return tuple(
        REGISTRY.get_sample_value(f"tbhub_merge_{kind}_runs") for kind in ("due", "resting")
    )


def test_merger_at_start_counts_runs_left_in_database(left_unmerged, monkeypatch):
    monkeypatch.setattr(merger, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(merger, "IDLE_SECONDS", 3600.0)
    with starting(left_unmerged[0].merger):
        wait_until(lambda: waiting_runs() == (2, 2))


def test_merger_at_start_merges_runs_of_all_workspaces(left_unmerged, monkeypatch):
    monkeypatch.setattr(merger, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(merger, "IDLE_SECONDS", 0.0)
    with starting(left_unmerged[0].merger):
        for experiment in left_unmerged:
            experiment.wait_until_merged("due", "small")


@pytest.mark.usefixtures("left_unmerged")
def test_merger_search_is_left_to_process_that_does_it(database):
    with database.transaction() as other:
        assert compaction_backlog.try_lock_search(other)
        assert list(find_backlog(database)) == []
    assert len(list(find_backlog(database))) == 4


def test_merger_stop_merges_what_is_queued(database):
    experiment = Experiment(database)
    experiment.merger.start()
    experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.write("small", limits.PACKED_POINTS_MIN)
    experiment.merger.stop()
    assert experiment.merged() == {"due", "small"}
