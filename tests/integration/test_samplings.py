"""Every sampling equals its rule applied to all points, wherever they are stored; and all its
limits and errors.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import psycopg
import pytest
from sqlalchemy import event, text

from support.batches import images, packed_scalars, scalars, segment, stream, texts
from tbservice import limits
from tbservice.reading import catalog, changes, reservoir, tag_groups
from tbservice.reading.full_scan import stream_all
from tbservice.sample_order import choose_uniform_sample, compute_slots
from tbservice.series.tables import sample_slots
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Sampling, SamplingRule, Selection, StepRange
from tbwire.points import DataClass

INT64_MAX = 2**63 - 1
RANGES = [
    {},
    {"step_min": 100},
    {"step_max": 901},
    {"step_min": 64, "step_max": 1_300},
    {"step_min": 5_000},
]
ACROSS = [
    {"step_min": 8_200},
    {"step_min": 9_999, "step_max": 10_001},
    {"last": 20_000},
    {"step_max": 18_500},
]
LASTS = [{"last": 0}, {"last": 1}, {"last": 150}, {"last": 10_000}]


@pytest.fixture
def ranks(database):
    with database.snapshot() as db:
        return sample_slots.get_ranks(db)


@pytest.fixture
def drawn(database):
    with database.snapshot() as db:
        return sample_slots.draw_slots(db, 20.0, 7)


def sampled_from(steps, where):
    """Return the indices of the steps in a range or of the `last` ones."""
    indices = np.arange(len(steps))
    if "last" in where:
        return indices[max(0, len(steps) - where["last"]) :]
    return indices[
        (steps >= where.get("step_min", -INT64_MAX - 1))
        & (steps <= where.get("step_max", INT64_MAX))
    ]


def linear(steps, k):
    first, last = int(steps[0]), int(steps[-1])
    if k <= 1:
        return steps[len(steps) - k :].tolist()
    ends = [(first * (k - 1) + (last - first) * index) for index in range(k)]
    return sorted({min(step for step in steps.tolist() if step * (k - 1) >= end) for end in ends})


def expected_steps(steps, how, ranks, drawn):
    """Return what each rule keeps of these steps, by a plain implementation."""
    if not len(steps):
        return []
    rule, k = how.get("sampling", "uniform"), how.get("downsample")
    if k is None and rule != "bernoulli":
        return steps.tolist()
    if rule == "bernoulli":
        kept = drawn[compute_slots(steps)]
        kept[0] = kept[-1] = True
        return steps[kept].tolist()
    return (
        linear(steps, k)
        if rule == "linear"
        else steps[choose_uniform_sample(steps, k, ranks)].tolist()
    )


HOW = [
    *({"downsample": k} for k in (0, 1, 3, 25, 2**31 - 1)),
    *({"sampling": "linear", "downsample": k} for k in (0, 1, 3, 25)),
    {"sampling": "bernoulli", "percent": 20, "seed": 7},
]


def grow(writer):
    """Write a series with sealed blocks, levels, a write buffer and an inline buffer; with gaps
    between steps.
    """
    for start in range(0, 1_280, 160):
        writer.write(range(start, start + 160, 2))
        writer.merge()
    writer.write([1_290, 1_295])
    writer.merge()
    for start in range(1_300, 1_345, 5):
        writer.write([start])


def disturb(writer):
    """Write steps in between, and newer points of older steps: the count is no longer exact, and a
    block stays open.
    """
    for number in range(4):
        writer.write(
            [2 * number + 1, 1_279 - 2 * number]
        )  # far apart: too much to rewrite for so few points
    writer.merge()
    assert writer.levels()[-1]
    writer.write([5, 101, 640, 1_291], [1.0, 2.0, 3.0, 4.0])
    writer.write([3, 103], [5.0, 6.0])


@pytest.mark.parametrize("is_exact", [True, False])
def test_samples_of_scalars_are_what_rule_says_of_all_points(
    api, experiment, writer, ranks, drawn, monkeypatch, is_exact
):
    monkeypatch.setattr(limits, "BLOCK_POINTS_MAX", 16)
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 50)
    grow(writer)
    if not is_exact:
        disturb(writer)
    assert {0, 1, "tail", "end"} <= {level for level, rows in writer.levels().items() if rows}
    whole = writer.expected()
    for how, where in itertools.product(HOW, [*RANGES, *LASTS[1:3]]):
        sample = api.get(experiment, "scalars/data", **how, **where)["train"]["loss"]
        in_range = whole[sampled_from(whole["step"], where)]
        expected = expected_steps(in_range["step"], how, ranks, drawn)
        assert sample["steps"] == expected, (how, where)
        assert sample["kept"] == len(expected)
        assert sample["total"] == (len(whole) if "last" in where else len(in_range)), (how, where)
        assert sample["sampling"] == how.get("sampling", "uniform")
        points = whole[np.isin(whole["step"], expected)]
        assert sample["values"] == points["value"].tolist()
        assert sample["wall_times"] == points["wall_time"].tolist()


def test_reads_of_large_and_small_batches_are_in_step_order(api, experiment, writer):
    """Compaction packs the small ends of large batches: no block may overlap those that were sealed
    in place.
    """
    steps = np.arange(60_000)
    for start in range(0, 60_000, 10_000):
        series = packed_scalars("loss", steps[start : start + 10_000])
        api.write(experiment, segment(stream("train", f"f{start}"), 0, 1, series))
    writer.merge()
    again = np.arange(9_000, 12_000)
    for is_late in (False, True):
        if is_late:
            late = scalars("loss", again, np.zeros(len(again)), np.full(len(again), 2e9))
            api.write(experiment, segment(stream("train", "again"), 0, 1, late))
        for asked in (
            {"sampling": "all"},
            *({"sampling": "linear", "downsample": 100_000, **where} for where in [{}, *ACROSS]),
            *({"downsample": 100_000, **where} for where in ACROSS),
        ):
            sample = api.get(experiment, "scalars/data", **asked)["train"]["loss"]
            expected = steps[sampled_from(steps, asked)]
            assert np.array_equal(sample["steps"], expected), asked
            assert sample["total"] == (len(steps) if "last" in asked else len(expected)), asked
            is_again = is_late & np.isin(expected, again)
            assert np.array_equal(sample["values"], np.where(is_again, 0.0, expected / 3)), asked


def test_extremes_keep_spikes_and_nan_within_count(api, experiment, writer, monkeypatch):
    monkeypatch.setattr(limits, "BLOCK_POINTS_MAX", 16)
    monkeypatch.setattr(limits, "SCAN_CHUNK_POINTS", 50)
    steps = np.arange(0, 1_280, 2)
    values = np.sin(steps / 40)
    values[[100, 300, 301, 500]] = [9.0, -9.0, math.nan, math.inf]
    for part in range(0, len(steps), 80):
        writer.write(steps[part : part + 80], values[part : part + 80])
        writer.merge()
    for k, where in itertools.product((5, 37, 1_000), [*RANGES, *LASTS[1:3]]):
        sample = api.get(experiment, "scalars/data", sampling="extremes", downsample=k, **where)[
            "train"
        ]["loss"]
        in_range = sampled_from(steps, where)
        assert len(sample["steps"]) == min(sample["kept"], k)
        assert set(sample["steps"]) <= set(steps[in_range].tolist())
        if len(in_range):
            assert (sample["steps"][0], sample["steps"][-1]) == (
                steps[in_range[0]],
                steps[in_range[-1]],
            )
            inner = values[in_range]
            assert ("NaN" in sample["values"]) == np.isnan(inner).any()
            numbers = [float(value) for value in sample["values"] if value != "NaN"]
            assert (min(numbers), max(numbers)) == (np.nanmin(inner), np.nanmax(inner))
        if len(in_range) <= k:
            assert sample["steps"] == steps[in_range].tolist()


def test_samples_of_tensors_and_blobs_follow_rule(api, experiment, ranks, drawn):
    steps = np.random.default_rng(0).choice(np.arange(-300, 1_500), 150, replace=False)
    words = [b"at %d" % step for step in steps]
    blobs = [[b"%d" % step, b"second"] for step in steps % 9]
    api.write(
        experiment,
        segment(stream(), 0, 9, texts("words", steps, words), images("pictures", steps, blobs)),
    )
    ordered = np.sort(steps)
    for how, where in itertools.product(HOW, [*RANGES[:1], *RANGES[3:], *LASTS[1:2]]):
        in_range = ordered[sampled_from(ordered, where)]
        expected = expected_steps(in_range, how, ranks, drawn)
        for kind, tag in (("tensors", "words"), ("blob_sequences", "pictures")):
            sample = api.get(experiment, f"{kind}/data", **how, **where)["train"][tag]
            assert sample["steps"] == expected, (kind, how, where)
            assert sample["wall_times"] == [1.7e9 + step for step in expected]
            assert (sample["kept"], sample["total"]) == (
                len(expected),
                150 if "last" in where else len(in_range),
            )
            if kind == "tensors":
                words_found = [value["data"] for value in sample["values"]]
                assert words_found == [[f"at {step}"] for step in expected]


INDICES = [
    ({}, [0, 1, 2, 3]),
    ({"index_min": 1}, [1, 2, 3]),
    ({"index_min": 1, "index_max": 2}, [1, 2]),
    ({"index_max": 0}, [0]),
    ({"index_min": 9}, []),
    ({"index_last": 1}, [3]),
    ({"index_last": 0}, []),
    ({"index_last": 9}, [0, 1, 2, 3]),
]


def test_blobs_of_point_are_chosen_by_index(api, experiment):
    api.write(
        experiment,
        segment(stream(), 0, 9, images("pictures", [3], [[b"%d" % index for index in range(4)]])),
    )
    for asked, expected in INDICES:
        (keys,) = api.get(experiment, "blob_sequences/data", **asked)["train"]["pictures"]["values"]
        read = [api.request("GET", f"/blobs/{blob['key']}").content for blob in keys]
        assert read == [b"%d" % index for index in expected], asked
        for blob in keys:
            assert (
                api.client.get(f"/data/blob/{blob['key']}", headers=api.headers).status_code == 200
            )
            for address in (f"/data/blob/{blob['key']}", f"/api/v1/blobs/{blob['key']}"):
                head = api.client.head(address, headers=api.headers)
                assert (head.status_code, head.headers["Content-Length"], head.content) == (
                    200,
                    "1",
                    b"",
                )
                assert api.client.head(address).status_code == 401


def test_answer_bounds_blobs_and_tensor_bytes(api, experiment, monkeypatch):
    api.write(experiment, segment(stream(), 0, 9, images("pictures", range(3), [[b"x"] * 4] * 3)))
    monkeypatch.setattr("tbservice.reading.catalog.READ_BLOBS_MAX", 11)
    monkeypatch.setattr("tbservice.reading.catalog.READ_BYTES_MAX", 11)
    assert (
        len(api.get(experiment, "blob_sequences/data", downsample=2)["train"]["pictures"]["steps"])
        == 2
    )
    refused = api.request("GET", f"/experiments/{experiment}/blob_sequences/data")
    assert (refused.status_code, "11 blobs (read_blobs_max)" in refused.json()["detail"]) == (
        413,
        True,
    )
    api.write(experiment, segment(stream(), 9, 19, texts("words", range(3), [b"aaa"] * 3)))
    refused = api.request("GET", f"/experiments/{experiment}/tensors/data")
    assert (
        refused.status_code,
        "11 bytes of tensors (read_bytes_max)" in refused.json()["detail"],
    ) == (413, True)


def test_scalar_series_are_found_by_their_last_value(api, experiment):
    last = {"low": 0.5, "good": 0.9, "better": 0.95, "broken": math.nan, "endless": math.inf}
    api.write(
        experiment,
        *(
            segment(stream(run), 0, 9, scalars("accuracy", [0, 1], [1.0, value]))
            for run, value in last.items()
        ),
    )
    for path in ("scalars", "scalars/data"):
        assert set(api.get(experiment, path, last_value_min=0.9)) == {"good", "better", "endless"}
        assert set(api.get(experiment, path, last_value_max=0.9)) == {"low", "good"}
        assert set(
            api.get(experiment, path, last_value_min=0.9, last_value_max=0.9, tag="accuracy")
        ) == {"good"}
        assert api.get(experiment, path, last_value_min=0.6, last_value_max=0.7) == {}


REFUSED = [
    ("scalars", {"last": 3, "step_min": 1}, "'last' cannot be combined with"),
    ("scalars", {"step_min": 2, "step_max": 1}, "'step_min' is greater than 'step_max'"),
    ("scalars", {"downsample": -1}, "downsample"),
    ("scalars", {"downsample": 2**31}, "downsample"),
    ("scalars", {"downsample": "many"}, "downsample"),
    ("scalars", {"step_min": 2**63}, "step_min"),
    ("scalars", {"last": -1}, "last"),
    ("scalars", {"percent": 3}, "sampling=bernoulli"),
    ("scalars", {"sampling": "bernoulli"}, "requires 'percent'"),
    ("scalars", {"sampling": "bernoulli", "percent": 0}, "percent"),
    ("scalars", {"sampling": "bernoulli", "percent": "nan"}, "percent"),
    ("scalars", {"sampling": "bernoulli", "percent": 1e-300}, "percent"),
    ("scalars", {"sampling": "bernoulli", "percent": 5, "downsample": 5}, "excludes 'downsample'"),
    ("scalars", {"sampling": "extremes", "downsample": 4}, "5 points at least"),
    ("tensors", {"sampling": "extremes"}, "only scalars have extremes"),
    ("scalars", {"sampling": "linear", "downsample": 1_000_001}, "at most 1000000"),
    ("scalars", {"sampling": "sideways"}, "sampling"),
    ("scalars", {"last_value_min": "nan"}, "last_value_min"),
    ("scalars", {"run_regex": ".*"}, "run_regex"),
    ("blob_sequences", {"index_last": 1, "index_min": 0}, "'index_last' cannot be combined with"),
    ("blob_sequences", {"index_min": -1}, "index_min"),
]


def test_sampling_parameters_invalid_are_refused_by_name(api, experiment):
    for path, asked, says in REFUSED:
        for answer in (
            api.request("GET", f"/experiments/{experiment}/{path}/data", params=asked),
            api.request("POST", f"/experiments/{experiment}/{path}/data", json=asked),
        ):
            assert answer.status_code == 422, answer.text
            assert says in answer.json()["detail"]


def test_answer_over_limit_is_refused_with_limit(api, experiment, writer, monkeypatch):
    writer.write(range(1_000))
    monkeypatch.setattr(limits, "READ_POINTS_MAX", 400)
    monkeypatch.setattr("tbservice.reading.sampling.bernoulli_and_full.SCAN_POINTS_MAX", 900)

    def ask(**asked):
        answer = api.request("GET", f"/experiments/{experiment}/scalars/data", params=asked)
        return answer.status_code, answer.json().get("detail", "")

    assert ask(downsample=400)[0] == 200
    for asked, limit, name in [
        ({"downsample": 401}, "400", "read_points_max"),
        ({"last": 401}, "400", "read_points_max"),
        ({"sampling": "bernoulli", "percent": 50}, "400", "read_points_max"),
        ({"sampling": "linear", "downsample": 10}, "900", "scan_points_max"),
    ]:
        status, detail = ask(**asked)
        assert status == 413, asked
        assert f"the limit of {limit}" in detail
        assert f"({name})" in detail


def test_runs_and_tags_that_do_not_exist_are_absent(api, experiment, writer):
    writer.write(range(3))
    for sampling in ("uniform", "linear", "extremes"):
        asked = {"sampling": sampling, "downsample": 9}
        assert (
            api.get(experiment, "scalars/data", run=["train", "nowhere"], tag="nothing", **asked)
            == {}
        )
        many = {"run": [f"r{n}" for n in range(5_000)] + ["train"], **asked}
        answer = api.request("POST", f"/experiments/{experiment}/scalars/data", json=many)
        assert list(answer.json()) == ["train"]


PLANS = []


def explain(connection, query, params):
    """Record a query's plan."""
    statement = query if isinstance(query, bytes) else str(query).encode()
    if statement.split(None, 1)[0] in {b"SELECT", b"WITH"}:
        with psycopg.Cursor(connection) as plain:
            plain.execute(b"EXPLAIN " + statement, params)
            PLANS.append("\n".join(line for (line,) in plain.fetchall()))


class Explaining(psycopg.Cursor):
    """A cursor that records each query's plan before running it."""

    def execute(self, query, params=None, **options):
        explain(self.connection, query, params)
        return super().execute(query, params, **options)


class ExplainingServer(psycopg.ServerCursor):
    """A server-side cursor that explains its statements, too."""

    def execute(self, query, params=None, **options):
        explain(self.connection, query, params)
        return super().execute(query, params, **options)


def plans_of(database, workspace_id, read):
    """Return the plans of all queries of a read."""

    def prepare(connection, *_others):
        connection.cursor_factory, connection.server_cursor_factory = Explaining, ExplainingServer

    PLANS.clear()
    event.listen(database.engine, "checkout", prepare)
    try:
        with database.snapshot(workspace_id) as db:
            read(db)
    finally:
        event.remove(database.engine, "checkout", prepare)
        database.engine.dispose()
    return list(PLANS)


MANY_ROWS = """
    INSERT INTO {table} (experiment_id, workspace_id, series_id, {columns})
    SELECT 'another', {workspace_id}, number % 100, {values} FROM generate_series(1, 40000) AS number
"""


def fill_tables(database, workspace_id):
    """Fill the tables so that the planner avoids sequential scans."""
    kinds = {
        "scalar_blocks": ("level, count, first_step, last_step, data", "0, 1, number, number, ''"),
        "scalar_tail": ("count, is_packed, data", "1, false, ''"),
        "tensor_points": (
            "rank, sample_key, step, wall_time, dtype, shape, data",
            "1, number, number, 1, 1, '{}', '\\x00'",
        ),
        "blob_points": ("rank, sample_key, step, wall_time, digests", "1, number, number, 1, '{}'"),
    }
    with database.transaction(workspace_id) as db:
        for table, (columns, values) in kinds.items():
            statement = (
                MANY_ROWS.replace("{table}", table)
                .replace("{workspace_id}", str(workspace_id))
                .replace("{columns}", columns)
                .replace("{values}", values)
            )
            db.execute(text(statement))


def write_tags(api, count):
    """Create an experiment with `count` runs, and `count` tags of each data class in the first run;
    one in the others.

    Each run has an early series besides, so that its series are not adjacent.
    """
    experiment = api.new_experiment()
    for file_name, tags in (
        ("early", lambda _run: ["early"]),
        ("late", lambda run: range(1 if run else count)),
    ):
        segments = []
        for run in range(count):
            series = [
                each
                for tag in tags(run)
                for each in (
                    scalars(f"loss {tag}", range(5)),
                    texts(f"words {tag}", range(5), [b"a"] * 5),
                    images(f"pictures {tag}", range(5), [[b"x"]] * 5),
                )
            ]
            segments.append(segment(stream(f"run{run}", file_name), 0, 9, *series))
        api.write(experiment, *segments)
    return experiment


SAMPLINGS = [
    Sampling(k=1),
    Sampling(k=3),
    Sampling(k=3, steps=StepRange(1, 3)),
    Sampling(SamplingRule.ALL, last=2),
    Sampling(SamplingRule.LINEAR, k=3),
    Sampling(SamplingRule.BERNOULLI, percent=50.0),
]


def reads_of(database, grant):
    """Return every function that reads many series, by name."""
    samples = {
        "scalars": catalog.read_scalars,
        "tensors": catalog.read_tensors,
        "blobs": catalog.read_blob_sequences,
    }
    reads = {
        f"{kind} {sampling}": lambda db, read=read, sampling=sampling: read(
            db, grant, Selection(), sampling
        )
        for kind, read in samples.items()
        for sampling in SAMPLINGS
    }
    for data_class in DataClass:
        selection = Selection(data_class=data_class)
        reads |= {
            f"all {data_class}": lambda _db, data_class_=data_class: list(
                stream_all(database, grant, Selection(), data_class_)
            ),
            f"new {data_class}": lambda db, selection=selection: changes.read_changes(
                db, grant, selection, None, 10_000
            ),
        }
    return reads | {
        "names": lambda db: tag_groups.list_tags_by_run(db, grant),
        "metadata": lambda db: catalog.list_series_with_counts(db, grant, Selection()),
        "page": lambda db: catalog.list_series_page(db, grant, Selection(), "", 1_000),
        "classic": lambda db: list(
            reservoir.read_scalars(
                db,
                grant,
                catalog.list_series(db, grant, Selection(data_class=DataClass.SCALAR)),
                reservoir.equally_spaced(2),
            )
        ),
    }


@pytest.mark.plain("reads plans of one server; those of a cluster: cluster/test_citus_plans.py")
@pytest.mark.own_database
def test_reads_use_indexes_with_constant_query_count(api, database, workspace_id, ranks):
    assert len(ranks)  # they are read once for a process
    fill_tables(database, workspace_id)
    counts = []
    for count in (1, 10):
        grant = ReadGrant(workspace_id, write_tags(api, count))
        plans = {
            name: plans_of(database, workspace_id, read)
            for name, read in reads_of(database, grant).items()
        }
        for name, plan in ((name, plan) for name, of_read in plans.items() for plan in of_read):
            for table in ("scalar_blocks", "scalar_tail", "tensor_points", "blob_points"):
                assert f"Seq Scan on {table}" not in plan, (name, plan)
            for table in (
                "runs",
                "tags",
            ):  # those of an experiment that has just come are looked through for each row
                assert "Nested Loop" not in plan or f" on {table}" not in plan, (name, plan)
        counts.append({name: len(of_read) for name, of_read in plans.items()})
    assert counts[0] == counts[1]
    assert min(counts[0].values()) > 1


@pytest.mark.plain("reads the plan of one server; its VACUUM writes to one, too")
@pytest.mark.own_database
def test_names_are_listed_from_an_index_alone(client, api, database, database_url, workspace_id):
    experiment = api.new_experiment()
    for run, tags in (("z", ["b", "a"]), ("y", ["a", "b"]), ("x", ["b"])):
        each = [scalars(tag, [0]) for tag in tags]
        api.write(experiment, segment(stream(run), 0, 9, *each))
    names = client.get(f"/api/v1/experiments/{experiment}/names", headers=api.headers)
    assert names.text == '{"z":["b","a"],"y":["b","a"],"x":["b"]}'

    write_tags(api, 20)
    with psycopg.connect(database_url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE time_series")
    grant = ReadGrant(workspace_id, experiment)
    plans = plans_of(database, workspace_id, reads_of(database, grant)["names"])
    assert any("Index Only Scan using time_series_names" in plan for plan in plans), plans


def test_full_scan_of_single_block_keeps_to_steps(client, api):
    experiment = api.new_experiment(packed_scalars("loss", range(100), range(100)))
    answer = client.get(
        f"/api/v1/experiments/{experiment}/scalars/data?sampling=all&step_min=40&step_max=42",
        headers=api.headers,
    )
    assert answer.json()["train"]["loss"]["steps"] == [40, 41, 42]
