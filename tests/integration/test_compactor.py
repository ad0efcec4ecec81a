"""When the compactor compacts a run: when its batches pause, or at once when too many points wait."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from sqlalchemy import text

from support.direct_writer import new_grant, write_points
from support.uploading import wait_until
from tbservice import limits
from tbservice.ingest.door import Door
from tbservice.ingest.observers import CompactionQueue
from tbservice.metrics import REGISTRY
from tbservice.series import compactor
from tbservice.series.compactor import (
    COMPACTION_SEARCH_RECENT_SECONDS,
    COMPACTION_SETTLED_SECONDS,
    find_backlog,
)
from tbservice.series.tables import compaction_backlog
from tbwire.points import ScalarPoints

pytestmark = pytest.mark.own_database


class Experiment:
    """An experiment whose batches are reported to a compactor."""

    def __init__(self, database):
        self.database = database
        self.compactor = compactor.Compactor(database)
        self.grant = new_grant(database)
        self.offsets = {}

    def write(self, run, count, *, is_noticed=True):
        """Append `count` points to the one series of the run; report it to the compactor if
        `is_noticed`.
        """
        start = self.offsets.get(run, 0)
        end = self.offsets[run] = start + count
        steps = np.arange(start, end)
        points = ScalarPoints(steps, 1.7e9 + steps, steps / 3)
        observers = [CompactionQueue(self.compactor)] if is_noticed else []
        with Door(self.database, observers).transaction(self.grant) as writer:
            write_points(writer, self.grant, points, start, end, run=run)

    def wake(self):
        with self.compactor._condition:
            self.compactor._condition.notify()

    def compacted(self):
        """Return the names of the runs without points in the write buffer."""
        with self.database.snapshot(self.grant.workspace_id) as db:
            return set(
                db.execute(
                    text(
                        "SELECT name FROM runs JOIN time_series USING (experiment_id, run_id) WHERE tail_points = 0"
                    )
                ).scalars()
            )

    def wait_until_compacted(self, *runs):
        wait_until(lambda: self.compacted() == set(runs))


@pytest.fixture
def experiment(database):
    experiment = Experiment(database)
    experiment.compactor.start()
    yield experiment
    experiment.compactor.stop()


def test_compaction_waits_for_pause_unless_urgent(experiment, monkeypatch):
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 3600.0)
    experiment.write("busy", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.write("full", 4 * limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wait_until_compacted("full")
    experiment.write("full", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wake()
    assert experiment.compacted() == set()
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 0.0)
    experiment.wake()
    experiment.wait_until_compacted("busy", "full")


def test_compactor_compacts_small_run_once_it_is_idle(experiment, monkeypatch):
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(compactor, "IDLE_SECONDS", 3600.0)
    experiment.write("small", limits.PACKED_POINTS_MIN)
    experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.wait_until_compacted("due")
    monkeypatch.setattr(compactor, "IDLE_SECONDS", 0.0)
    experiment.wake()
    experiment.wait_until_compacted("due", "small")


@pytest.fixture
def left_uncompacted(database):
    """Experiments of two workspaces, each with a run above the threshold and a small one, that no
    running process knows.
    """
    left = [Experiment(database), Experiment(database)]
    for experiment in left:
        experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX, is_noticed=False)
        experiment.write("small", limits.PACKED_POINTS_MIN, is_noticed=False)
    return left


@contextmanager
def starting(compactor):
    """Run the compactor until the block ends."""
    compactor.start()
    try:
        yield
    finally:
        compactor.stop()


def waiting_runs():
    """Return two metrics: the number of runs above the threshold, and of idle runs."""
    return tuple(
        REGISTRY.get_sample_value(f"tbhub_merge_{kind}_runs") for kind in ("due", "resting")
    )


def test_compactor_at_start_counts_runs_left_in_database(left_uncompacted, monkeypatch):
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(compactor, "IDLE_SECONDS", 3600.0)
    with starting(left_uncompacted[0].compactor):
        wait_until(lambda: waiting_runs() == (2, 2))


def test_compactor_at_start_compacts_runs_of_all_workspaces(left_uncompacted, monkeypatch):
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(compactor, "IDLE_SECONDS", 0.0)
    with starting(left_uncompacted[0].compactor):
        for experiment in left_uncompacted:
            experiment.wait_until_compacted("due", "small")


def test_compactor_finds_what_other_host_leaves_later(database, monkeypatch):
    monkeypatch.setattr(compactor, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(compactor, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(compactor, "COMPACTION_SEARCH_INTERVAL_SECONDS", 0.1)
    searches = []
    monkeypatch.setattr(
        compactor, "find_backlog", lambda *given: searches.append(given) or find_backlog(*given)
    )
    experiment = Experiment(database)
    with starting(experiment.compactor):
        wait_until(lambda: len(searches) > 1)  # the first, of all that is there, has ended
        experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX, is_noticed=False)
        experiment.write("small", limits.PACKED_POINTS_MIN, is_noticed=False)
        experiment.wait_until_compacted("due")
        monkeypatch.setattr("tbservice.series.compactor.COMPACTION_SETTLED_SECONDS", 0)
        experiment.wait_until_compacted("due", "small")


def test_compactor_repeated_search_leaves_small_runs_in_use(left_uncompacted, database):
    recent = (COMPACTION_SEARCH_RECENT_SECONDS, COMPACTION_SETTLED_SECONDS)
    runs = list(find_backlog(database, *recent))
    assert [run.is_above_threshold for run in runs] == [True] * len(left_uncompacted)
    for experiment in left_uncompacted:
        with database.transaction(experiment.grant) as db:
            db.exec_driver_sql("UPDATE experiments SET data_at = now() - interval '4 minutes'")
    assert len(list(find_backlog(database, *recent))) == 2 * len(left_uncompacted)
    assert list(find_backlog(database, 60)) == []


@pytest.mark.usefixtures("left_uncompacted")
def test_compactor_search_is_done_by_one_process(database):
    with database.transaction() as other:
        assert compaction_backlog.try_lock_search(other)
        assert list(find_backlog(database)) == []
    assert len(list(find_backlog(database))) == 4


def test_compactor_stop_compacts_queued_runs(database):
    experiment = Experiment(database)
    experiment.compactor.start()
    experiment.write("due", limits.WRITE_BUFFER_POINTS_MAX)
    experiment.write("small", limits.PACKED_POINTS_MIN)
    experiment.compactor.stop()
    assert experiment.compacted() == {"due", "small"}
