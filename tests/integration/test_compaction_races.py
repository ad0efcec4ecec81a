"""Two processes that compact one experiment at once leave what one process leaves."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import text

from support.compaction_process import merging_processes
from support.uploading import wait_until
from tbservice.auth.workspaces import create_workspace
from tbservice.experiments.lifecycle import create_experiment
from tbservice.ingest.batch import Segment, SentMetadata, SentSeries
from tbservice.ingest.commit import write_batch
from tbservice.ingest.door import PointWriter
from tbservice.reading import catalog, digests
from tbservice.series import compaction
from tbservice.series.tables import runs_tags
from tbservice.types.grants import AppendGrant, ReadGrant, WorkspaceGrant
from tbservice.types.sampling import Sampling, Selection
from tbservice.types.series import Stream
from tbwire.points import DataClass, ScalarPoints

pytestmark = pytest.mark.own_database

METADATA = SentMetadata("scalars", DataClass.SCALAR, b"")
RUNS = ("a", "b")
TAGS = 15
BATCHES = 16

KEPT = """
    SELECT s.series_id FROM time_series AS s WHERE s.count_is_exact AND s.count <>
        length(s.tail_end) / 24
        + (SELECT coalesce(sum(t.count), 0) FROM scalar_tail AS t
            WHERE t.experiment_id = s.experiment_id AND t.series_id = s.series_id)
        + (SELECT coalesce(sum(b.count), 0) FROM scalar_blocks AS b
            WHERE b.experiment_id = s.experiment_id AND b.series_id = s.series_id AND level <= 0)
"""


class Experiment:
    """An experiment written without HTTP: every batch has all runs and tags."""

    def __init__(self, database, workspace_id):
        self.database = database
        with database.transaction(workspace_id) as db:
            experiment_id = create_experiment(db, WorkspaceGrant(workspace_id)).experiment_id
        self.append = AppendGrant(workspace_id, experiment_id)
        self.read = ReadGrant(workspace_id, experiment_id)

    def write(self, number):
        """The batch of this number: steps that go on, begin again, or stand anywhere; the same for
        any experiment.
        """
        rng = np.random.default_rng(number)
        segments = []
        for index, run in enumerate(RUNS):
            series = [
                SentSeries(f"tag {tag}", METADATA, _points(rng, number, tag)) for tag in range(TAGS)
            ]
            of = Stream(run, "file", bytes(32), 0, bytes(32))
            segments.append(
                Segment(index, of, number, number + 1, number, number + 1, series, {}, 0.0)
            )
        with self.database.transaction(self.append.workspace_id) as db:
            write_batch(PointWriter(db), self.append, segments)

    def run_ids(self):
        with self.database.transaction(self.append.workspace_id) as db:
            return list(runs_tags.resolve_runs(db, self.append, RUNS).values())

    def merge(self):
        for run_id in self.run_ids():
            with self.database.transaction(self.append.workspace_id) as db:
                assert (
                    compaction.compact_run(db, self.append, run_id, compact_idle=True).series
                    <= compaction.SERIES_PER_COMPACTION
                )

    def stored(self):
        """Return the digest of every series, and samples, which are read from levels."""
        with self.database.snapshot(self.read.workspace_id) as db:
            listed, after = digests.list_digests(db, self.read, Selection(), "", 1_000)
            assert after is None
            samples = catalog.read_scalars(db, self.read, Selection(), Sampling(k=300))
            assert db.execute(text(KEPT)).all() == []
        proofs = {
            (series.series.run, series.series.tag): (series.count, series.first_step, series.sha256)
            for series in listed
        }
        taken = {
            (series.run, series.tag): (each.steps.tolist(), each.values.tolist(), each.total)
            for series, each in samples
        }
        return proofs, taken


def _points(rng, number, tag):
    """Few points or many; every third batch goes back, and wins; every fifth tag's steps stand
    anywhere.
    """
    count = (50, 1_500, 3_000)[(number + tag) % 3]
    first = number * 1_000 - (1_500 if number % 3 == 2 else 0)
    steps = rng.permutation(count) + first if tag % 5 == 4 else np.arange(first, first + count)
    return ScalarPoints(steps, np.full(count, 1.7e9 + number), rng.normal(size=count))


@pytest.fixture
def experiments(database):
    """Two empty experiments of one workspace."""
    with database.transaction() as db:
        workspace_id = create_workspace(db, "merging")
    return Experiment(database, workspace_id), Experiment(database, workspace_id)


def test_compactors_at_once_leave_what_one_leaves(experiments, database_url):
    alone, together = experiments
    for number in range(BATCHES):
        alone.write(number)
        alone.merge()
    for number in range(BATCHES // 2):
        together.write(number)
    with merging_processes(2, database_url, together.append, together.run_ids()) as merged:
        wait_until(lambda: sum(number.value for number in merged) >= TAGS * len(RUNS))
        assert all(number.value for number in merged), "one of them did all the work"
        for number in range(BATCHES // 2, BATCHES):
            together.write(number)
    assert together.stored() == alone.stored()
