"""Compaction moves points and changes no read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
from sqlalchemy import text

from support.direct_writer import new_grant, write_points
from support.statements import record_statements
from tbservice import limits, sample_order
from tbservice.ingest.door import PointWriter
from tbservice.reading import catalog
from tbservice.series import compaction
from tbservice.series.compaction_thresholds import group_pending_runs
from tbservice.series.tables import runs_tags, sample_slots
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Sampling, Selection
from tbwire.points import ScalarPoints

SEVERAL = ("a", "b", "c")


class Series:
    """Scalar series of one run with equal points, written and read without HTTP."""

    def __init__(self, database):
        self.database = database
        self.append = new_grant(database)
        self.read = ReadGrant(self.append.workspace_id, self.append.experiment_id)
        self.offset = 0

    def write(self, steps, values=None, wall_time=None, file_name="f", tags=("tag",)):
        steps = np.asarray(steps, np.int64)
        values = steps / 3 if values is None else np.asarray(values, np.float64)
        wall_times = 1.7e9 + steps / 7 if wall_time is None else np.full(len(steps), wall_time)
        start, self.offset = self.offset, self.offset + 1
        points, files = ScalarPoints(steps, wall_times, values), (start, self.offset)
        with self.database.transaction(self.append.workspace_id) as db:
            writer = PointWriter(db)
            write_points(writer, self.append, points, *files, file_name=file_name, tags=tags)
        return group_pending_runs([update.row for update in writer.stored[-1].updates])

    def merge(self, **options):
        with self.database.transaction(self.append.workspace_id) as db:
            run_id = runs_tags.resolve_runs(db, self.append, ["run"])["run"]
            return compaction.compact_run(db, self.append, run_id, **options)

    def sample(self, k):
        with self.database.snapshot(self.read.workspace_id) as db:
            (_, sample), *others = catalog.read_scalars(db, self.read, Selection(), Sampling(k=k))
            for _, other in others:
                assert np.array_equal(other.steps, sample.steps)
                assert np.array_equal(other.values, sample.values)
            return sample

    def listed(self):
        with self.database.snapshot(self.read.workspace_id) as db:
            (series,) = catalog.list_series_with_counts(db, self.read, Selection())
            return series

    def rows(self, table, columns="count(*)"):
        with self.database.snapshot(self.read.workspace_id) as db:
            return db.execute(text(f"SELECT {columns} FROM {table}")).all()  # noqa: S608 - constants of this file


@pytest.fixture
def series(database):
    return Series(database)


def expected_sample(series, steps, k):
    with series.database.snapshot(series.read.workspace_id) as db:
        ranks = sample_slots.get_ranks(db)
    steps = np.unique(np.asarray(steps, np.int64))
    return steps[sample_order.choose_uniform_sample(steps, k, ranks)].tolist()


def test_series_reads_same_before_and_after_compaction(series):
    steps = np.arange(20_000) * 3
    for part in np.array_split(steps, 70):
        pending = series.write(part)
    assert pending.above_threshold
    before = {k: series.sample(k) for k in (1, 10, 1000, 100_000)}
    assert series.merge().series == 1
    assert series.merge().series == 0
    for k, sample in before.items():
        after = series.sample(k)
        assert after.steps.tolist() == sample.steps.tolist() == expected_sample(series, steps, k)
        assert np.array_equal(after.values, after.steps / 3)
        assert np.array_equal(after.wall_times, sample.wall_times)
        assert after.total == sample.total == 20_000
    assert series.rows("scalar_tail") == [(0,)]
    assert series.rows("scalar_blocks WHERE level = 0", "count") == [(8192,), (8192,)]


def test_sample_of_long_series_from_level_equals_full_one(series):
    steps = np.arange(100_000)
    for part in np.array_split(steps, 8):
        series.write(part)
        series.merge()
    levels = dict(series.rows("scalar_blocks GROUP BY level ORDER BY level", "level, sum(count)"))
    assert 8_000 < levels[1] < 15_000
    assert 1_000 < levels[2] < 1_900
    for k in (2, 3, 50, 250, 1_000):
        assert series.sample(k).steps.tolist() == expected_sample(series, steps, k)
    series.write([100_000])
    assert series.sample(1000).steps[-1] == 100_000


def test_restart_supersedes_points_and_compaction_counts_them(series):
    series.write(np.arange(20_000), wall_time=100.0)
    series.merge(compact_idle=True)
    assert series.listed().count == 20_000
    series.write(np.arange(15_000, 25_000), np.full(10_000, 7.0), wall_time=200.0)
    assert series.listed().count == 25_000  # counted, as the row's own figure is not exact now
    assert series.sample(100_000).total == 25_000
    series.merge(compact_idle=True)
    sample = series.sample(100_000)
    assert sample.steps.tolist() == list(range(25_000))
    assert np.all(sample.values[15_000:] == 7.0)
    assert sample.values[14_999] == 14_999 / 3
    assert series.rows("time_series", "count, count_is_exact") == [(25_000, True)]
    some = series.sample(100)
    assert np.all(some.values[some.steps >= 15_000] == 7.0)


def test_level_keeps_later_arrival_of_equal_wall_times(series):
    count = 32_768
    series.write(np.arange(count), np.zeros(count), wall_time=5.0)
    series.merge(compact_idle=True)
    late = np.concatenate([[15_000], np.arange(22_500, 25_000)])
    series.write(late, np.ones(len(late)), wall_time=5.0)
    series.merge(compact_idle=True)
    assert series.listed().count_is_exact
    sample = series.sample(2_500)
    assert np.array_equal(sample.values, np.isin(sample.steps, late))


def test_levels_contain_block_sealed_and_rewritten_at_once(series):
    spans = [np.arange(20_000, 21_500), np.arange(1_500), np.arange(3_000, 11_000)]
    for steps in spans:
        series.write(steps)
    assert series.merge(compact_idle=True).sealed_in_place == 1
    expected = expected_sample(series, np.concatenate(spans), 50)
    assert series.sample(50).steps.tolist() == expected


def test_steps_rewritten_often_leave_neighbours_uncopied(series):
    count = 12 * limits.BLOCK_POINTS_MAX
    series.write(np.arange(count))
    series.merge(compact_idle=True)
    ((thinned,),) = series.rows("scalar_blocks", "sum(count) FILTER (WHERE level > 0)")
    steps = np.arange(0, count, 97)
    for number in range(20):
        series.write(steps + number, steps * 0.0 + number, 1.8e9 + number)
        series.merge(compact_idle=True)
    ((now,),) = series.rows("scalar_blocks", "sum(count) FILTER (WHERE level > 0)")
    assert thinned < now < 2 * thinned
    sample = series.sample(count)
    assert sample.values[:21].tolist() == [*range(20), 20 / 3]
    assert series.sample(500).steps.tolist() == expected_sample(series, np.arange(count), 500)


def write_all(series, batches, worker):
    mine = Series.__new__(Series)
    mine.__dict__.update(series.__dict__, offset=0)
    for steps, wall_time in batches:
        unique = np.unique(steps)
        values = np.full(len(unique), wall_time)
        mine.write(unique, values, wall_time=wall_time, file_name=f"w{worker}", tags=SEVERAL)


def merge_until(series, is_done):
    while not is_done.is_set():
        series.merge(compact_idle=True)


def read_until(series, is_done):
    seen = 0
    while not is_done.is_set():
        total = series.sample(10_000).total
        assert total >= seen, "a read shrank"
        seen = total


def test_concurrent_writers_and_compactors_equal_one_writer(series):
    series.write([0], [0.0], wall_time=1.0, tags=SEVERAL)
    rng = np.random.default_rng(5)
    batches = [(rng.integers(0, 5000, 400), float(n + 2)) for n in range(30)]
    is_done = threading.Event()
    with ThreadPoolExecutor(5) as threads:
        helpers = [
            threads.submit(function, series, is_done)
            for function in (merge_until, merge_until, read_until)
        ]
        writers = [
            threads.submit(write_all, series, batches[worker::2], worker) for worker in range(2)
        ]
        wait(writers)
        is_done.set()
    assert [each.result() for each in helpers + writers] == [None] * 5
    expected = {0: 0.0}
    for steps, wall_time in batches:
        expected.update(dict.fromkeys(steps.tolist(), wall_time))
    sample = series.sample(10_000)
    assert dict(zip(sample.steps.tolist(), sample.values.tolist(), strict=True)) == expected


def test_compaction_statements_do_not_grow_with_series(database, monkeypatch, pytestconfig):
    """Steps in no order make compaction run every kind of statement."""

    def count_statements(tags):
        series = Series(database)
        for first, end in ((20_000, 21_500), (0, 1_500), (3_000, 11_000)):
            series.write(np.arange(first, end), tags=tags)
        with monkeypatch.context() as patch:
            statements = record_statements(patch)
            assert series.merge(compact_idle=True).series == len(tags)
        return len(statements)

    count_statements(["tag"])  # reads the ranks of the slots, once
    most = 15 if pytestconfig.getoption("citus") else 14
    assert (
        0 < count_statements(["tag"]) == count_statements([f"tag {i}" for i in range(10)]) <= most
    )
