"""Observation logs of Katib's trials: what is stored, read and deleted, and the points made of it."""

from __future__ import annotations

import math
import threading
import time

import pytest
from sqlalchemy import text

from support.batches import scalars, segment, stream, texts
from support.katib import KatibClient, log
from support.people import new_machine_token
from support.servers import new_workspace
from tbservice import limits
from tbservice.auth import grants
from tbservice.errors import Forbidden, Invalid, NotFound, RunDeleted, TooLarge
from tbservice.experiments.eraser import erase_due
from tbservice.katib import observation_log
from tbservice.katib.katib_pb2 import (
    GetObservationLogRequest,
    MetricLog,
    ReportObservationLogRequest,
)
from tbservice.katib.reports import (
    KATIB_REPEAT_ITEMS_MAX,
    KATIB_REPEAT_SECONDS_MAX,
    KATIB_REPORT_LOGS_MAX,
    KATIB_REPORT_METRICS_MAX,
)
from tbservice.types.grants import KatibGrant, Scope

TRIAL = "random-bcdf2456"
NOON = "2026-01-31T12:00:00Z"
NOON_SECONDS = 1769860800.0


def only_experiment(api):
    """The id of the only experiment."""
    (listed,) = api.experiments()
    return listed["experiment_id"]


def points(api, run=TRIAL, experiment_id=None):
    """{tag: (steps, wall times, values)} of a run's scalars."""
    experiment_id = experiment_id or only_experiment(api)
    read = api.get(experiment_id, "scalars/data").get(run, {})
    return {
        tag: (series["steps"], series["wall_times"], series["values"])
        for tag, series in read.items()
    }


VALUES = ["0.10", "1e-3", "nan", "inf", "unavailable", "", "-", "[0.1\n 0.2]", "a\0b", "ü", "1_0"]


def test_report_keeps_values_byte_for_byte(katib):
    katib.report(TRIAL, *(log("m", value, NOON) for value in VALUES))
    assert katib.get(TRIAL) == [(NOON, "m", value) for value in VALUES]


def test_report_of_numbers_becomes_points(api, katib):
    katib.report(TRIAL, *(log("m", value, NOON) for value in VALUES))
    steps, wall_times, values = points(api)["m"]
    assert (steps, wall_times) == ([0, 1, 2, 3], [NOON_SECONDS] * 4)
    assert [float(value) for value in values] == pytest.approx(
        [0.1, 0.001, math.nan, math.inf], nan_ok=True
    )


def test_report_counts_steps_on_per_metric(api, katib):
    katib.report(TRIAL, log("b", 1), log("a", 2), log("b", 3), log("c", "text"))
    katib.report(TRIAL, log("b", 5), log("a", "x"), log("a", 6))
    assert {tag: (read[0], read[2]) for tag, read in points(api).items()} == {
        "a": ([0, 1], [2, 6]),
        "b": ([0, 1, 2], [1, 3, 5]),
    }


@pytest.mark.parametrize(
    ("trial", "metadata", "experiment"),
    [
        (TRIAL, "named", "named"),
        ("by-hand", "named", "named"),
        ("by-hand", None, "katib"),
        ("by-hand", "n" * 300, "n" * limits.EXPERIMENT_NAME_CHARS_MAX),
    ],
)
def test_report_goes_to_experiment_of_metadata(api, katib, trial, metadata, experiment):
    katib.report(trial, log("m", 1), experiment=metadata)
    katib.report(trial, log("m", 2))
    listed = api.experiments()
    assert [item["name"] for item in listed] == [experiment]
    assert katib.values(trial) == ["1", "2"]


def test_report_sent_again_is_not_stored_twice(api, katib):
    twice = [log("m", 1), log("m", 1)]
    for _ in range(3):
        katib.report(TRIAL, *twice)
    assert katib.values(TRIAL) == ["1", "1"]
    assert points(api)["m"][0] == [0, 1]
    katib.report(TRIAL, log("m", 2))
    katib.report(TRIAL, *twice)
    assert katib.values(TRIAL) == ["1", "1", "2"]
    katib.report("random-zzzzzzzz", *twice)
    assert katib.values("random-zzzzzzzz") == ["1", "1"]


def test_report_sent_after_many_others_is_new(katib):
    katib.report(TRIAL, log("m", "first"))
    for number in range(KATIB_REPEAT_ITEMS_MAX):
        katib.report(TRIAL, log("m", number))
    katib.report(TRIAL, log("m", "first"))
    assert katib.values(TRIAL).count("first") == 2


def test_report_sent_much_later_is_new(katib, database, workspace_id):
    katib.report(TRIAL, log("m", 1))
    with database.transaction(workspace_id) as db:
        (recent,) = db.execute(text("SELECT recent_reports FROM katib_trials")).one()
        moved = int.from_bytes(recent[:8], "little") - 1_000_000 * KATIB_REPEAT_SECONDS_MAX
        changed = moved.to_bytes(8, "little") + recent[8:]
        db.execute(text("UPDATE katib_trials SET recent_reports = :recent"), {"recent": changed})
    katib.report(TRIAL, log("m", 1))
    assert katib.values(TRIAL) == ["1", "1"]


def test_report_skips_logs_without_timestamp(api, katib):
    katib.report(TRIAL, log("m", 1, ""), MetricLog(), log("m", 2))
    assert katib.values(TRIAL) == ["2"]
    assert points(api)["m"][2] == [2]


def test_report_of_nothing_creates_nothing(api, katib):
    for request_ in (
        ReportObservationLogRequest(trial_name=TRIAL),
        ReportObservationLogRequest(trial_name=TRIAL, observation_log={}),
        ReportObservationLogRequest(
            trial_name=TRIAL, observation_log={"metric_logs": [log("m", 1, "")]}
        ),
    ):
        katib.call(observation_log.report, request_)
        assert api.experiments() == [], request_


def test_report_with_bad_log_stores_nothing(api, katib):
    for trial, bad, error, words in (
        (TRIAL, log("m", 1, "yesterday"), Invalid, r"metric_logs\[1\].time_stamp 'yesterday'"),
        (TRIAL, log("m", 1, "2026-02-30T00:00:00Z"), Invalid, r"metric_logs\[1\].time_stamp"),
        (TRIAL, MetricLog(time_stamp=NOON), Invalid, r"metric_logs\[1\] has no metric"),
        (TRIAL, log("m", "x" * 65_537), TooLarge, "katib_value_bytes_max"),
        (TRIAL, log("m" * 10_001, 1), TooLarge, "10000 characters"),
        (TRIAL, log("m\0", 1), Invalid, "NUL"),
        ("t" * 10_001, log("m", 1), TooLarge, "10000 characters"),
        ("t\0", log("m", 1), Invalid, "NUL"),
        ("", log("m", 1), Invalid, "trial_name is empty"),
    ):
        with pytest.raises(error, match=words):
            katib.report(trial, log("m", 1), bad)
        assert api.experiments() == [], trial


def test_report_of_too_many_logs_is_refused(katib):
    with pytest.raises(TooLarge, match="katib_report_logs_max"):
        katib.report(TRIAL, *[log("m", 1)] * (KATIB_REPORT_LOGS_MAX + 1))
    many = [log(str(number), 1) for number in range(KATIB_REPORT_METRICS_MAX + 1)]
    with pytest.raises(TooLarge, match="katib_report_metrics_max"):
        katib.report(TRIAL, *many)


def test_report_with_long_names_is_stored(api, katib):
    trial, metric = "t" * 10_000, "m/" * 5_000
    katib.report(trial, log(metric, 1))
    assert katib.get(trial, metric)[0][1:] == (metric, "1")
    assert points(api, trial)[metric][2] == [1]


def test_report_of_zero_time_has_wall_time_of_now(api, katib):
    zero = "0001-01-01T00:00:00Z"
    before = time.time()
    katib.report(TRIAL, log("m", 1, zero), log("m", 2, NOON))
    (now, noon) = points(api)["m"][1]
    assert before <= now <= time.time()
    assert noon == NOON_SECONDS
    assert katib.get(TRIAL) == [(zero, "m", "1"), (NOON, "m", "2")]


def test_first_report_sets_start_of_run(api, katib):
    katib.report(TRIAL, log("m", 1, "2026-01-31T12:00:01Z"), log("m", 2, NOON))
    katib.report(TRIAL, log("m", 3, "2026-01-31T13:00:00Z"))
    (run,) = api.get(only_experiment(api), "runs")["runs"]
    assert run["start_time"] == NOON_SECONDS


def test_report_of_extreme_years_is_stored(api, katib):
    first, last = "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
    katib.report(TRIAL, log("m", 1, last), log("m", 2, first))
    assert katib.get(TRIAL) == [(first, "m", "2"), (last, "m", "1")]
    assert points(api)["m"][2] == [1, 2]
    katib.delete(TRIAL)
    assert points(api) == {}


@pytest.mark.parametrize("tag", ["session_start_info", "session_end_info", "experiment"])
def test_report_of_session_tags_is_kept_as_log(api, katib, tag):
    katib.report(TRIAL, log(f"_hparams_/{tag}", 1), log("m", 2))
    katib.report(TRIAL, log(f"_hparams_/{tag}", 3))
    assert katib.values(TRIAL) == ["1", "2", "3"]
    assert list(points(api)) == ["m"]


def test_report_into_uploaded_series_of_another_plugin(api, katib):
    katib.report(TRIAL, log("other", 1))
    experiment_id = only_experiment(api)
    of = stream(TRIAL)
    api.write(experiment_id, segment(of, 0, 9, texts("m", [0], [b"uploaded"])))
    katib.report(TRIAL, log("m", 1))
    assert katib.values(TRIAL, "m") == ["1"]
    assert list(points(api)) == ["other"]
    katib.delete(TRIAL)
    assert "m" in api.get(experiment_id, "tensors")[TRIAL]


def test_report_after_last_possible_step_is_kept_as_log(api, katib):
    katib.report(TRIAL, log("other", 1))
    uploaded = scalars("m", [2**63 - 2])
    api.write(only_experiment(api), segment(stream(TRIAL), 0, 9, uploaded))
    katib.report(TRIAL, log("m", 1), log("m", 2))
    katib.report(TRIAL, log("m", 3))
    katib.report(TRIAL, log("m", 4))
    assert katib.values(TRIAL, "m") == ["1", "2", "3", "4"]
    assert points(api)["m"][2][1:] == [3]


def test_get_orders_by_time_then_arrival(katib):
    early, late = "2026-01-31T11:00:00Z", "2026-01-31T13:00:00Z"
    katib.report(TRIAL, log("b", 1), log("a", 2, late), log("a", 3), log("b", 4, early))
    katib.report(TRIAL, log("b", 5), log("b", 6, "2026-01-31T14:00:00.0000009+02:00"))
    assert katib.values(TRIAL) == ["4", "1", "3", "5", "6", "2"]
    assert katib.values(TRIAL, "a") == ["3", "2"]


def test_get_bounds_are_inclusive(katib):
    katib.report(TRIAL, *(log("m", n + 1, f"2026-01-31T12:00:0{n}Z") for n in range(4)))
    for start, end, values in (
        ("", "", "1234"),
        ("2026-01-31T12:00:01Z", "", "234"),
        ("", "2026-01-31T12:00:01Z", "12"),
        ("2026-01-31T13:00:01+01:00", "2026-01-31T12:00:02.0000009Z", "23"),
        ("2026-01-31T12:00:01.000001Z", "2026-01-31T12:00:01.999999Z", ""),
        ("2026-01-31T12:00:03Z", "2026-01-31T12:00:00Z", ""),
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1234"),
    ):
        assert "".join(katib.values(TRIAL, start=start, end=end)) == values, (start, end)


def test_get_with_bad_bound_is_refused(katib):
    for field in (
        "start_time",
        "end_time",
    ):
        with pytest.raises(Invalid, match=f"{field} 'x'"):
            katib.call(
                observation_log.get, GetObservationLogRequest(trial_name="t", **{field: "x"})
            )


@pytest.mark.parametrize(("trial", "metric"), [("unknown", ""), (TRIAL, "unknown"), ("", "")])
def test_get_of_unknown_is_empty_log_that_is_present(katib, trial, metric):
    katib.report(TRIAL, log("m", 1))
    request = GetObservationLogRequest(trial_name=trial, metric_name=metric)
    reply = katib.call(observation_log.get, request)
    assert reply.HasField("observation_log")
    assert not reply.observation_log.metric_logs


def test_delete_removes_logs_and_their_points_alone(api, katib):
    katib.report(TRIAL, log("m", 1), log("m", 2), log("only", 3), log("text", "x"))
    katib.report("random-zzzzzzzz", log("m", 9))
    experiment_id = only_experiment(api)
    uploaded = [scalars("m", [5, 6]), scalars("uploaded", [0])]
    api.write(experiment_id, segment(stream(TRIAL), 0, 9, *uploaded))
    katib.report(TRIAL, log("m", 7))
    before = points(api)
    assert before["m"][0] == [0, 1, 5, 6, 7]

    katib.delete(TRIAL)
    kept = {"m": tuple(column[2:4] for column in before["m"]), "uploaded": before["uploaded"]}
    assert points(api) == kept
    assert katib.get(TRIAL) == []
    assert katib.values("random-zzzzzzzz") == ["9"]
    assert points(api, "random-zzzzzzzz")["m"][2] == [9]
    katib.delete(TRIAL)
    assert points(api) == kept


def test_delete_keeps_uploaded_points_of_derived_steps(api, katib):
    katib.report(TRIAL, *(log("m", n) for n in range(3)))
    later = scalars("m", [1], [8.5], [NOON_SECONDS + 60])
    api.write(only_experiment(api), segment(stream(TRIAL), 0, 9, later))
    katib.delete(TRIAL)
    assert points(api)["m"] == ([1], [NOON_SECONDS + 60], [8.5])


def test_delete_of_nan_and_many_points_in_blocks(api, katib):
    logs = [log("m", "nan" if n % 3 else n, f"2026-01-31T12:00:00.{n:06}Z") for n in range(3_000)]
    katib.report(TRIAL, *logs)
    experiment_id = only_experiment(api)
    api.write(experiment_id, segment(stream(TRIAL), 0, 9, scalars("m", range(3_000, 3_010))))
    katib.compact(TRIAL)
    katib.report(TRIAL, log("m", 1))
    katib.delete(TRIAL)
    assert points(api)["m"][0] == list(range(3_000, 3_010))
    counts = {
        series["tag"]: series["count"] for series in api.get(experiment_id, "digests")["series"]
    }
    assert counts["m"] == 10


def test_delete_is_seen_by_change_cursors(api, katib):
    katib.report(TRIAL, log("m", 1), log("m", 2))
    experiment_id = only_experiment(api)
    api.write(experiment_id, segment(stream(TRIAL), 0, 9, scalars("m", [5])))
    cursor = api.get(experiment_id, "scalars/new")["cursor"]
    katib.delete(TRIAL)
    news = api.get(experiment_id, "scalars/new", since=cursor)["points"][TRIAL]["m"]
    assert news["steps"] == [5]


def test_report_after_delete_is_stored_again(api, katib):
    katib.report(TRIAL, log("m", 1))
    katib.delete(TRIAL)
    katib.report(TRIAL, log("m", 1))
    assert katib.values(TRIAL) == ["1"]
    assert points(api)["m"][0] == [0]


def test_delete_of_unknown_trial_is_noop(api, katib):
    katib.delete("unknown")
    katib.delete("")
    assert api.experiments() == []


def test_run_that_is_deleted_takes_its_logs_along(api, katib):
    katib.report(TRIAL, log("m", 1))
    path = f"/experiments/{only_experiment(api)}/runs"
    assert api.request("DELETE", path, params={"run": TRIAL}).status_code == 204
    assert katib.get(TRIAL) == []
    with pytest.raises(RunDeleted):
        katib.report(TRIAL, log("m", 2))
    allowed = api.request("DELETE", f"{path}/deleted", params={"run": TRIAL})
    assert allowed.status_code == 204
    katib.report(TRIAL, log("m", 1))
    assert katib.values(TRIAL) == ["1"]


def test_experiment_that_is_deleted_leaves_no_logs(api, katib, database, workspace_id):
    katib.report(TRIAL, log("m", 1))
    experiment_id = only_experiment(api)
    path = f"/experiments/{experiment_id}?final=true"
    assert api.request("DELETE", path).status_code == 204
    assert katib.get(TRIAL) == []
    while erase_due(database, threading.Event()):
        pass
    with database.transaction(workspace_id) as db:
        counts = db.execute(
            text("""
                SELECT (SELECT count(*) FROM katib_trials),
                    (SELECT count(*) FROM katib_observations),
                    (SELECT count(*) FROM katib_experiments)
            """)
        )
        assert counts.one() == (0, 0, 0)
    katib.report(TRIAL, log("m", 2))
    assert katib.values(TRIAL) == ["2"]
    assert only_experiment(api) != experiment_id


def test_experiment_deleted_under_token_is_not_found(api, client, workspace_id):
    experiment_id = api.new_experiment()
    assert api.request("DELETE", f"/experiments/{experiment_id}").status_code == 204
    grant = KatibGrant(workspace_id, experiment_id, may_read=True)
    with pytest.raises(NotFound):
        KatibClient(client.app.state.ingest, grant).report(TRIAL, log("m", 1))


def test_tenants_with_equal_names_stay_apart(client, katib, database_url):
    other = new_workspace(database_url)
    theirs = KatibClient(
        client.app.state.ingest,
        KatibGrant(other.workspace_id, None, may_read=True, may_delete=True),
    )
    katib.report(TRIAL, log("m", "ours"))
    assert theirs.get(TRIAL) == []
    theirs.delete(TRIAL)
    theirs.report(TRIAL, log("m", "theirs"))
    assert katib.values(TRIAL) == ["ours"]
    assert theirs.values(TRIAL) == ["theirs"]
    katib.delete(TRIAL)
    assert theirs.values(TRIAL) == ["theirs"]


def test_experiments_with_equal_trials_stay_apart(api, client, workspace_id):
    ids = [api.new_experiment() for _ in range(2)]
    clients = [
        KatibClient(client.app.state.ingest, KatibGrant(workspace_id, id_, may_read=True))
        for id_ in ids
    ]
    for number, each in enumerate(clients):
        each.report(TRIAL, log("m", number), experiment="not used")
    assert [each.values(TRIAL) for each in clients] == [["0"], ["1"]]
    for number, id_ in enumerate(ids):
        assert points(api, experiment_id=id_)["m"][2] == [number]


def grant_of(database, secret):
    with database.transaction() as db:
        return grants.grant_katib(db, secret)


def test_grant_of_owner_is_for_whole_workspace(database, owner_token, workspace_id):
    assert grant_of(database, owner_token) == KatibGrant(
        workspace_id, None, may_read=True, may_delete=True
    )


@pytest.mark.parametrize(
    ("scopes", "may_read"), [(["append"], False), (["append", "read"], True), (["read"], None)]
)
def test_grant_of_token_is_for_its_experiment(
    api, client, database, workspace_id, scopes, may_read
):
    experiment_id = api.new_experiment()
    made = api.request("POST", f"/experiments/{experiment_id}/tokens", json={"scopes": scopes})
    secret = made.json()["token"]
    if may_read is None:
        with pytest.raises(Forbidden, match="lacks the scope append"):
            grant_of(database, secret)
        return
    grant = grant_of(database, secret)
    assert grant == KatibGrant(workspace_id, experiment_id, may_read)
    katib = KatibClient(client.app.state.ingest, grant)
    katib.report(TRIAL, log("m", 1))
    if may_read:
        assert katib.values(TRIAL) == ["1"]
    else:
        with pytest.raises(Forbidden, match="lacks the scope read"):
            katib.get(TRIAL)
    with pytest.raises(Forbidden, match="a workspace with the scope admin can delete"):
        katib.delete(TRIAL)
    assert points(api, experiment_id=experiment_id)["m"][2] == [1]


@pytest.mark.parametrize("scopes", [["append"], ["append", "read"]])
def test_grant_of_weaker_workspace_token_deletes_nothing(client, database, workspace_id, scopes):
    secret = new_machine_token(database, workspace_id, *map(Scope, scopes))
    grant = grant_of(database, secret)
    assert grant == KatibGrant(workspace_id, None, may_read="read" in scopes)
    katib = KatibClient(client.app.state.ingest, grant)
    katib.report(TRIAL, log("m", 1))
    with pytest.raises(Forbidden, match="a workspace with the scope admin can delete"):
        katib.delete(TRIAL)
