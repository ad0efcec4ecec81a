"""Summaries of scalar series are those of the points that reads show, however these arrive."""

from __future__ import annotations

import math

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from support.batches import scalars
from support.direct_writer import new_grant, write_points
from support.restarted_job import Job
from tbservice.db.database import Database
from tbservice.ingest.door import PointWriter
from tbservice.series.compaction import compact_run
from tbservice.series.summary_filler import fill
from tbservice.series.tables import runs_tags, summary_format, summary_rows
from tbservice.series.tables.summary_format import Summary
from tbservice.types.grants import ReadGrant
from tbwire.points import ScalarPoints

VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]),
    st.floats(width=32),
)


@st.composite
def histories(draw):
    """Draw batches of (step, wall time, value), None for a compaction, "fill" for a fill."""
    width = draw(st.sampled_from([1, 1, 30, 1_500]))
    actions = []
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from(["append", "append", "rewrite", "compact", "fill"]))
        if kind in {"compact", "fill"}:
            actions.append(kind)
            continue
        count = draw(st.integers(1, 4))
        times = draw(st.lists(st.integers(0, 60), min_size=count, max_size=count))
        values = draw(st.lists(VALUES, min_size=count, max_size=count))
        steps = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
        actions.append((kind, steps, times, values, width))
    return actions


class Model:
    """The newest point of each step, by wall time and then by arrival."""

    def __init__(self):
        self.points = {}

    def add(self, steps, times, values):
        for step, time, value in zip(steps, times, values, strict=True):
            if step not in self.points or time >= self.points[step][0]:
                self.points[step] = time, value

    def summary(self):
        finite = [(s, v) for s, (_, v) in sorted(self.points.items()) if math.isfinite(v)]
        not_finite = len(self.points) - len(finite)
        if not finite:
            return Summary(not_finite)
        low, high = min(v for _, v in finite), max(v for _, v in finite)
        return Summary(
            not_finite,
            next(s for s, v in finite if v == low),
            low,
            next(s for s, v in finite if v == high),
            high,
        )


def stored(job):
    """Return (is known, summary) of the job's series."""
    with job.database.snapshot(job.workspace_id) as db:
        columns = summary_rows.list_summaries(db, job.experiment)
    (record,) = columns.records
    is_known = record["not_finite"] >= 0
    return is_known, Summary(*record.tolist()[2:])


def fill_all(job):
    grant = ReadGrant(job.workspace_id, job.experiment)
    last = 0
    while last is not None:
        last = fill(job.database, grant, last)


def expand(action, model):
    """Return columns of points: of appended ones, all steps are after the last one."""
    kind, steps, times, values, width = action
    steps = [step * width + i for step in steps for i in range(width)]
    if kind == "append":
        first = max(model.points, default=-1) + 1
        steps = list(range(first, first + len(steps)))
    times = [1000.0 + time for time in times for _ in range(width)]
    values = [value + i if i else value for value in values for i in range(width)]
    return steps, times, values


def same(a, b):
    return np.array_equal(np.array(a), np.array(b), equal_nan=True)


@given(actions=histories())
@settings(
    max_examples=20,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
def test_summaries_equal_model(actions, api, database, workspace_id):
    job, model = Job(api, api.new_experiment(), database, workspace_id), Model()
    for action in actions:
        if action == "compact":
            job.compact()
        elif action == "fill":
            fill_all(job)
            assert not model.points or stored(job)[0]
        else:
            steps, times, values = expand(action, model)
            is_append = not model.points or min(steps) > max(model.points)
            was_known = not model.points or stored(job)[0]
            model.add(steps, times, values)
            job.write("events", 1000.0, scalars("loss", steps, values, times))
            assert stored(job)[0] == (is_append and was_known)
        if model.points:
            is_known, summary = stored(job)
            assert not is_known or same(summary, model.summary()), (summary, model.summary())
    fill_all(job)
    if model.points:
        is_known, summary = stored(job)
        assert is_known
        assert same(summary, model.summary()), (summary, model.summary())


@pytest.fixture
def job(api, database, workspace_id):
    return Job(api, api.new_experiment(), database, workspace_id)


def write(job, steps, values, time=1.0):
    job.write("events", 1.0, scalars("loss", steps, values, [time] * len(steps)))


def test_compaction_recomputes_summary_of_replaced_extreme(job):
    write(job, range(200), [-5.0, *range(1, 200)])
    write(job, [0, 200], [3.0, 4.0], time=2.0)
    assert not stored(job)[0]
    job.compact()
    assert stored(job) == (True, Summary(0, 1, 1.0, 199, 199.0))


def test_summary_of_earlier_release_is_unknown(job):
    """A server that does not know the column adds a point: it leaves the summary as it was."""
    write(job, [0, 1], [1.0, 2.0])
    with job.database.transaction(job.workspace_id) as db:
        db.execute(text("UPDATE time_series SET last_step = 9, count = 3"))
    assert not stored(job)[0]


def test_summary_extends_in_parts_as_at_once():
    random = np.random.default_rng(7)
    values = random.choice([1.0, 2.0, -3.5, math.nan, math.inf, -math.inf], 400)
    points = ScalarPoints(np.arange(400), np.ones(400), values)
    at_once = summary_format.EMPTY.extend(points)
    in_parts = summary_format.EMPTY
    for start in range(0, 400, 7):
        in_parts = in_parts.extend(points.select(slice(start, start + 7)))
    one_by_one = summary_format.pack(summary_format.EMPTY, 3, -1)
    for start in range(400):
        point = points.select(slice(start, start + 1))
        one_by_one = summary_format.extend(one_by_one, 3, start - 1, point)
    assert at_once == in_parts == summary_format.unpack(one_by_one, 3, 399)
    assert summary_format.extend(one_by_one, 4, 399, point) == summary_format.UNKNOWN
    assert at_once[1:] == (
        int(np.flatnonzero(values == -3.5)[0]),
        -3.5,
        int(np.flatnonzero(values == 2)[0]),
        2.0,
    )


def test_points_are_written_before_migration_of_summaries(servers):
    """A new server also works on the schema of the release before."""
    with servers.database() as url:
        database = Database(url, 1)
        with psycopg.connect(servers.owner_url(url)) as owner:
            owner.execute("ALTER TABLE time_series DROP COLUMN summary")
        grant = new_grant(database)
        workspace_id, id_ = grant.workspace_id, grant.experiment_id
        for number in range(40):
            points = ScalarPoints(np.arange(8) + 8 * number, np.ones(8), np.arange(8.0))
            with database.transaction(workspace_id) as db:
                write_points(PointWriter(db), grant, points, number, number + 1)
        with database.transaction(workspace_id) as db:
            run_id = runs_tags.resolve_runs(db, grant, ["run"])["run"]
            assert compact_run(db, grant, run_id, compact_idle=True).series == 1
        with database.snapshot(workspace_id) as db:
            columns = summary_rows.list_summaries(db, id_)
            assert summary_rows.list_unknown(db, id_, 0, 10) == []
        database.close()
    assert columns.counts.tolist() == [320]
    assert columns.records["not_finite"].tolist() == [-1]
