"""HParams while they are being logged, and where TensorBoard answers wrongly or not at all.

Scenarios are those of Guild's notes on TensorBoard; H1 to H11 number the defects of TensorBoard
2.21.0 that were found there.
"""

from __future__ import annotations

import json
import math
import time

import pytest

from support.batches import ApiClient, scalars
from support.hparams import (
    END,
    EXPERIMENT,
    START,
    STATUSES,
    WALL_TIME,
    HparamsClient,
    column,
    content_series,
    end,
    last,
    metric,
    start,
    summary,
    values,
)
from support.postgres_faults import postgres_faults
from support.servers import new_owner
from tbservice import limits
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.hparams import record_reader, requests, use_cases
from tbservice.hparams.session_table import HPARAMS_RUNNING_SECONDS_MAX
from tbservice.reading.comparison import ComparisonReader
from tbservice.reading.source import ExperimentReader
from tbservice.reading.version_cache import VersionCache
from tbwire.hparams import Status

LOSS = {"tag": "loss"}
INT32_MAX = 2**31 - 1


@pytest.fixture
def client(shared_api):
    """An experiment of this test's own."""
    return HparamsClient(shared_api)


# ---- Guild: no-session, change-status-*, check-status


def test_guild_no_session_shows_rows_of_scalars(client):
    """An experiment summary and scalars, but no session: each run with scalars is a row."""
    client.write("schema", summary([column("lr", type=3)], [metric("loss")]))
    assert client.columns()["lr"]["type"] == "DATA_TYPE_FLOAT64"
    assert client.names() == []
    client.write("run", last("loss", 0.5))
    assert client.names() == ["run"]
    assert values(client.groups()["run"]) == {("", "loss"): 0.5}
    assert client.groups()["run"]["hparams"] == {}


def test_guild_scalars_without_summary_are_no_sessions(client):
    client.write("run", last("loss", 0.5))
    assert client.experiment()["metricInfos"] == []
    assert client.list() == {"sessionGroups": [], "totalSize": 0}


def test_guild_change_status_newest_end_wins(client):
    client.write("run", start({"x": 1}))
    assert client.statuses() == {"run": "unknown"}
    for second, status in enumerate(("RUNNING", "FAILURE", "SUCCESS"), 1):
        client.write("run", end(f"STATUS_{status}", wall_time=WALL_TIME + second))
        assert client.statuses() == {"run": status.lower()}
    client.write("run", end("STATUS_FAILURE", wall_time=WALL_TIME + 1))
    assert client.statuses() == {"run": "success"}


def test_status_of_restarted_run_is_not_its_earlier_end(client):
    now = time.time()
    client.write("run", start({"x": 1}, wall_time=now - 100), end(wall_time=now - 50))
    assert client.statuses() == {"run": "success"}
    client.write("run", start({"x": 2}, wall_time=now - 10))
    session = client.sessions()["run"]
    assert (session["status"], session["endTimeSecs"]) == ("STATUS_RUNNING", 0.0)
    client.write("run", end("STATUS_FAILURE", wall_time=now))
    assert client.statuses() == {"run": "failure"}


def test_status_running_is_by_newest_data_of_all_runs(client):
    """Also by a point that is not the last by step, and by the runs below the session."""
    now, old = time.time(), time.time() - HPARAMS_RUNNING_SECONDS_MAX - 60
    for run in ("idle", "restarted", "evaluated", "starting"):
        client.write(run, start({"x": 1}, wall_time=now if run == "starting" else old))
    client.write("idle", last("loss", 1.0, 5, old))
    client.write("restarted", scalars("loss", [5, 1], [1.0, 2.0], [old, now]))
    client.write("evaluated/eval", last("loss", 1.0, 5, now))
    expected = {
        "idle": "unknown",
        **dict.fromkeys(("restarted", "evaluated", "starting"), "running"),
    }
    assert client.statuses() == expected
    running = client.names(allowedStatuses=["STATUS_RUNNING", "STATUS_SUCCESS"])
    assert running == ["evaluated", "restarted", "starting"]
    assert client.names(allowedStatuses=["STATUS_UNKNOWN"]) == ["idle"]


def test_hparams_that_are_set_keep_status_of_session(client):
    """A request is no start: an end that was logged before it counts, also one that is sent late."""
    now = time.time()
    ended = start({"x": 1}, wall_time=now - 100), end("STATUS_FAILURE", wall_time=now - 50)
    client.write("run", *ended)
    for hparams in ({"note": "good"}, {"x": 2}, {}):
        client.set_session("run", hparams=hparams)
        assert client.statuses() == {"run": "failure"}
    client.set_session("late", hparams={"x": 2})
    client.write("late", *ended)
    assert client.statuses() == {"run": "failure", "late": "failure"}
    client.write("run", start({"x": 3}, wall_time=now - 10))
    client.set_session("late", status="success")
    client.set_session("late", hparams={"y": 1})
    assert client.statuses() == {"run": "running", "late": "success"}
    assert client.groups()["late"]["hparams"] == {"x": 2.0, "y": 1.0}


def test_hparams_that_are_set_are_no_fresh_data(client):
    """A job that ended long ago is not running because someone describes it today."""
    old = time.time() - HPARAMS_RUNNING_SECONDS_MAX - 60
    client.write("logged", start({"x": 1}, wall_time=old), last("loss", 1.0, wall_time=old))
    client.write("plain", last("loss", 1.0, wall_time=old))
    for run in ("logged", "plain", "planned"):
        client.set_session(run, hparams={"note": "good"})
    assert client.statuses() == dict.fromkeys(("logged", "plain", "planned"), "unknown")
    client.write("plain", last("loss", 1.0, 2, wall_time=time.time()))
    assert client.names(allowedStatuses=["STATUS_RUNNING"]) == ["plain"]


# ---- H1 to H11


def test_h8_steps_beyond_int32_travel_as_its_ends(client):
    huge, tiny = 2**63 - 1, -(2**63)
    client.write("s", start({"x": 1}), last("up", 1.0, huge), last("down", 2.0, tiny))
    steps = [value["trainingStep"] for value in client.groups()["s"]["metricValues"]]
    assert steps == [-(2**31), INT32_MAX]
    evals = client.ask("metric_evals", sessionName="s", metricName={"tag": "up"})
    assert evals == [[WALL_TIME, huge, 1.0]]


def test_h8_metric_values_that_are_not_finite_travel_as_strings(client):
    points = scalars("loss", [1, 2], [math.inf, math.nan])
    client.write("s", start({"x": 1}), points)
    assert client.groups()["s"]["metricValues"][0]["value"] == "NaN"
    evals = client.ask("metric_evals", sessionName="s", metricName=LOSS)
    assert [value for _, _, value in evals] == ["Infinity", "NaN"]


def test_per_session_is_group_of_one_and_slice_of_sessions(client):
    client.write("a", start({"lr": 1}, group_name="z"), last("loss", 1.0))
    client.write("b", start({"lr": 2}), last("loss", 2.0))
    client.write("c", start({"lr": 3}, group_name="z"), last("loss", 3.0), end("STATUS_FAILURE"))

    def ask(**fields):
        request = {"allowedStatuses": STATUSES, "sliceSize": 10} | fields
        answer = client.ask("session_groups?per_session=true", **request)
        rows = [
            (group["name"], *(each["name"] for each in group["sessions"]), group["hparams"]["lr"])
            for group in answer["sessionGroups"]
        ]
        return answer["totalSize"], rows

    assert ask() == (3, [("z", "a", 1.0), ("b", "b", 2.0), ("z", "c", 3.0)])
    assert ask(startIndex=1, sliceSize=1) == (3, [("b", "b", 2.0)])
    assert ask(allowedStatuses=["STATUS_FAILURE"]) == (1, [("z", "c", 3.0)])
    by_loss = {"metric": LOSS, "order": "ORDER_DESC", "filterInterval": {"minValue": 2}}
    by_loss["filterInterval"]["maxValue"] = 9
    assert ask(colParams=[by_loss]) == (2, [("z", "c", 3.0), ("b", "b", 2.0)])
    assert client.refusal("session_groups?per_session=perhaps")[0] == 422


@pytest.fixture
def reader(shared_settings, client):
    """The client's experiment as a source; `reader.statements` counts what a call sends."""
    with postgres_faults(shared_settings.database_url.get_secret_value()) as proxy:
        database = Database(proxy.url, 1)
        yield CountingReader(database, proxy, client)
        database.close()


class CountingReader:
    """Reads through a proxy that counts statements."""

    def __init__(self, database, proxy, client) -> None:
        secret = client.api.headers["Authorization"].removeprefix("Bearer ")
        self._proxy = proxy
        with database.without_transaction() as db:
            grant = grants.grant_read(db, client.experiment_id, secret)
        self.source = ExperimentReader(grant, database, None)

    def statements(self, read) -> int:
        """The statements of a read, those of transactions among them."""
        self._proxy.disarm()
        read(self.source)
        return len(self._proxy.statements)


def test_h11_statements_do_not_grow_with_sessions(client, reader):
    request = {
        "allowedStatuses": [0, 1, 2, 3],
        "sliceSize": 100,
        "colParams": [{"metric": LOSS, "order": 1}, {"hparam": "x", "filterInterval": {}}],
    }
    groups = requests.parse_session_groups_request(json.dumps(request).encode())
    reads = (
        lambda source: use_cases.list_session_groups(source, groups),
        lambda source: use_cases.get_experiment(source, requests.ExperimentRequest("")),
    )
    counts = []
    for first, number in ((0, 2), (2, 20)):
        for session in range(first, first + number):
            series = (start({"x": 0.0, "y": session}), last("loss", 1.0), last(f"m{session}", 2.0))
            client.write(f"s{session}", *series)
        counts.append([min(reader.statements(read) for _ in range(3)) for read in reads])
    assert counts[0] == counts[1]
    assert max(counts[0]) <= 20


def test_status_that_allows_session_is_shown(client, reader):
    """Also if the session ends while its group is read."""
    now = time.time()
    client.write("run", start({"x": 1}, wall_time=now), last("loss", 1.0, wall_time=now))

    class EndsMeanwhile(ExperimentReader):
        def read(self, function, *arguments):
            result = super().read(function, *arguments)
            if function is record_reader.read_ends:
                client.write("run", end(wall_time=now))
            return result

    source = EndsMeanwhile(reader.source.grant, reader.source.database, None)
    for status in (Status.STATUS_RUNNING, Status.STATUS_SUCCESS):
        request = requests.SessionGroupsRequest(frozenset({status}), slice_size=9)
        (group,) = use_cases.list_session_groups(source, request).groups
        assert [session.status for session in group.sessions] == [status]


# ---- bad input


def test_malformed_records_are_left_out(client):
    for run, broken in (
        ("start", content_series(START, b"\xff")),
        ("end", content_series(END, b"\xff\xff")),
        ("summary", content_series(EXPERIMENT, b"\x12\x02\x0a\x09")),
        ("empty", content_series(START, b"")),
        ("end under the tag of a start", content_series(START, b"\x22\x02\x08\x01")),
    ):
        client.write(run, broken, last("loss", 1.0))
    client.write("good", start({"x": 1}), end(), last("loss", 2.0))
    assert client.names() == ["good"]
    assert (set(client.columns()), client.metrics()) == ({"x"}, [("", "loss")])


@pytest.mark.parametrize("name", ["", 'a"b.c[0]\x00\nü\u2028', "x" * 9_000])
def test_column_of_any_name_is_shown_filtered_and_sorted(client, name):
    for run, value in (("a", 2.0), ("b", 1.0), ("c", None)):
        client.write(run, start({name: value, "other": 1}))
    assert client.groups()["a"]["hparams"] == {name: 2.0, "other": 1.0}
    assert client.columns()[name]["domainInterval"] == {"minValue": 1.0, "maxValue": 2.0}
    by_name = {"hparam": name, "order": "ORDER_ASC", "excludeMissingValues": True}
    assert client.names(by_name) == ["b", "a"]


def test_body_over_limit_is_refused(client):
    body = b'{"experimentName": "' + b"x" * limits.JSON_BODY_BYTES_MAX + b'"}'
    assert client.post("experiment", body).status_code == 413


def test_deleted_run_is_no_session(client):
    for run in ("a", "b"):
        client.write(run, start({run: 1}), last(run, 1.0))
    assert client.names() == ["a", "b"]
    path = f"/experiments/{client.experiment_id}/runs"
    client.api.request("DELETE", path, params={"run": "a"}).raise_for_status()
    assert client.names() == ["b"]
    assert (set(client.columns()), client.metrics()) == ({"b"}, [("", "b")])
    evals = {"sessionName": "a", "metricName": {"tag": "a"}}
    assert client.refusal("metric_evals", **evals)[0] == 404


def test_experiment_name_of_another_tenant_is_no_experiment(client, shared_settings):
    other_owner = new_owner(shared_settings.database_url.get_secret_value())
    stranger = HparamsClient(ApiClient(client.api.client, other_owner))
    for fields in ({}, {"sessionName": "s", "metricName": LOSS}):
        path = "metric_evals" if fields else "session_groups"
        answers = [
            client.refusal(path, experimentName=name, **fields)
            for name in (stranger.experiment_id, "nothing", "0" * 22)
        ]
        assert answers == [(404, "there is no such experiment, or it is not yours")] * 3
    own_path = HparamsClient(client.api, stranger.experiment_id)
    assert own_path.refusal("session_groups")[0] == 404


def test_answers_over_limits_say_so(client, monkeypatch):
    for run in ("a", "b"):
        client.write(run, start({"x": 1, "y": 2}), last("loss", 1.0))
    sorted_by_x = [{"hparam": "x", "order": 1}]
    request = {"allowedStatuses": [0, 3], "sliceSize": 9, "colParams": sorted_by_x}
    for module, limit, number in (
        (use_cases, "HPARAMS_CELL_ITEMS_MAX", 1),
        (limits, "HPARAMS_RESPONSE_ITEMS_MAX", 7),
        (record_reader, "HPARAMS_VALUE_ITEMS_MAX", 3),
        (record_reader, "HPARAMS_CONTENT_BYTES_MAX", 10),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, number)
            patch.setattr(record_reader, "RECORDS", VersionCache(0, lambda _records: 1))
            status, detail = client.refusal("session_groups", **request)
        assert status == 413
        assert limit.lower() in detail
    assert client.ask("session_groups", **request)["totalSize"] == 2


def test_records_in_several_reads_are_the_same(client, monkeypatch):
    expected = {f"s{number}": {"x": float(number)} for number in range(5)}
    for run, hparams in expected.items():
        client.write(run, start(hparams))
    monkeypatch.setattr(record_reader, "RECORDS", VersionCache(0, lambda _records: 1))
    monkeypatch.setattr(limits, "SCAN_CHUNK_BYTES", 1)
    shown = {name: group["hparams"] for name, group in client.groups().items()}
    assert shown == expected


# ---- comparisons


def test_comparison_unites_columns_and_keeps_groups_apart(client, reader):
    other = HparamsClient(client.api)
    client.write(".", start({"x": 1}, group_name="g"), last("loss", 1.0))
    client.write("eval", last("loss", 2.0))
    client.write("schema", summary([column("x", display_name="X")], wall_time=WALL_TIME + 1))
    other.write("s", start({"y": "a"}, group_name="g"), last("loss", 3.0))
    other.write("schema", summary([column("x", display_name="older")]))
    database = reader.source.database
    second = CountingReader(database, reader._proxy, other).source
    source = ComparisonReader("compared", {"a": reader.source, "b": second})

    schema = use_cases.get_experiment(source, requests.ExperimentRequest("compared"))
    assert {info.name: info.display_name for info in schema.hparams} == {"x": "X", "y": ""}
    assert [(info.group, info.tag) for info in schema.metrics] == [("", "loss"), ("eval", "loss")]
    request = requests.SessionGroupsRequest(frozenset(Status), slice_size=9)
    page = use_cases.list_session_groups(source, request)
    shown = {
        group.name: (
            group.hparams,
            [session.name for session in group.sessions],
            [(point.metric.group, point.value) for point in group.metric_values],
        )
        for group in page.groups
    }
    assert shown == {
        "a/g": ({"x": 1.0}, ["a"], [("", 1.0), ("eval", 2.0)]),
        "b/g": ({"y": "a"}, ["b/s"], [("", 3.0)]),
    }
    evals = requests.MetricEvalsRequest("a", requests.MetricId("eval", "loss"))
    assert use_cases.list_metric_evals(source, evals) == [(WALL_TIME, 1, 2.0)]


class WritingReader(ExperimentReader):
    """An experiment to which the next point is written after each read of a request."""

    __slots__ = ("write",)

    def read(self, function, *args, **kwargs):
        result = ExperimentReader.read(self, function, *args, **kwargs)
        self.write()
        return result


@pytest.mark.parametrize("aggregation", ["AGGREGATION_AVG", "AGGREGATION_MAX"])
def test_metric_shown_is_that_which_group_was_chosen_by(client, reader, aggregation):
    for name in ("s", "t"):
        client.write(name, start({"x": 1}), last("loss", 1.0), last("other", 1.0))
    source = WritingReader(reader.source.grant, reader.source.database, None)
    steps = iter(range(2, 100))

    def write():
        step = next(steps)
        client.write("t", last("loss", float(step), step), last("other", float(step), step))

    object.__setattr__(source, "write", write)
    request = {
        "allowedStatuses": [0, 1, 2, 3],
        "sliceSize": 9,
        "aggregationType": aggregation,
        "aggregationMetric": LOSS,
        "colParams": [{"metric": LOSS, "filterInterval": {"minValue": 0, "maxValue": 2}}],
    }
    groups = requests.parse_session_groups_request(json.dumps(request).encode())
    page = use_cases.list_session_groups(source, groups)
    assert [group.name for group in page.groups] == ["s", "t"]
    changed = page.groups[1]
    for values_of in (changed.metric_values, changed.sessions[0].metric_values):
        by_tag = {each.metric.tag: each.value for each in values_of}
        assert by_tag["loss"] == 2.0  # written after the sessions were read, before their metrics
        assert by_tag["other"] > 2.0
