"""Katib's experiments and trials in TensorBoard: columns, hyperparameters, times and status."""

from __future__ import annotations

import math

import pytest
from google.protobuf import json_format
from sqlalchemy import text

from support.batches import scalars, segment, stream
from support.hparams import HparamsClient
from support.katib import KatibClient, log
from tbservice import limits
from tbservice.errors import Forbidden, Invalid, TooLarge
from tbservice.katib import trials
from tbservice.katib.katib_pb2 import (
    Experiment,
    GetSuggestionsReply,
    SetTrialStatusRequest,
    Trial,
    TrialStatus,
)
from tbservice.katib.places import guess_experiment
from tbservice.types.grants import KatibGrant

NAME = "random-bcdf2456"
NOON = 1769860800.0
START, END = "2026-01-31T12:00:00Z", "2026-01-31T12:10:00Z"


def experiment(name="random", **spec):
    """An experiment with a parameter of each type."""
    parameters = [
        {"name": "lr", "parameter_type": "DOUBLE", "feasible_space": {"min": "0.01", "max": "0.1"}},
        {"name": "layers", "parameter_type": "INT", "feasible_space": {"min": "1", "max": "9"}},
        {"name": "size", "parameter_type": "DISCRETE", "feasible_space": {"list": ["16", "32"]}},
        {"name": "mixed", "parameter_type": "DISCRETE", "feasible_space": {"list": ["1", "auto"]}},
        {"name": "cell", "parameter_type": "CATEGORICAL", "feasible_space": {"list": ["a", "1"]}},
        {"name": "open", "parameter_type": "DOUBLE", "feasible_space": {"min": "x", "max": "1"}},
    ]
    fields = {
        "parameter_specs": {"parameters": parameters},
        "objective": {
            "type": "MAXIMIZE",
            "objective_metric_name": "accuracy",
            "additional_metric_names": ["loss", "accuracy"],
        },
        "algorithm": {"algorithm_name": "random"},
        **spec,
    }
    return json_format.ParseDict({"name": name, "spec": fields}, Experiment())


VALUES = {"lr": "0.05", "layers": "3", "size": "16", "mixed": "1", "cell": "1", "open": "0.5"}
HPARAMS = {"lr": 0.05, "layers": 3, "size": 16, "mixed": "1", "cell": "1", "open": 0.5}


def trial(name=NAME, condition="RUNNING", values=VALUES, metrics=None, start=START, end=""):
    """A trial as a controller lists it."""
    made = Trial(name=name)
    for key, value in values.items():
        made.spec.parameter_assignments.assignments.add(name=key, value=value)
    is_number = isinstance(condition, int)
    made.status.condition = (
        condition if is_number else TrialStatus.TrialConditionType.Value(condition)
    )
    made.status.start_time, made.status.completion_time = start, end
    for key, value in (metrics or {}).items():
        made.status.observation.metrics.add(name=key, value=value)
    return made


@pytest.fixture
def record(katib):
    """Records a request."""
    return lambda *listed, of=None: katib.call(
        trials.record_request, experiment() if of is None else of, listed
    )


@pytest.fixture
def board(api):
    """The HParams API of the only experiment."""

    class Board:
        def __getattr__(self, name):
            (listed,) = api.experiments()
            return getattr(HparamsClient(api, listed["experiment_id"]), name)

    return Board()


def session(board, name=NAME):
    """(hyperparameters, status, start and end) of a session."""
    (shown,) = board.groups()[name]["sessions"]
    times = shown["startTimeSecs"], shown["endTimeSecs"]
    return board.groups()[name]["hparams"], shown["status"].removeprefix("STATUS_"), times


def test_request_makes_columns_of_parameters(record, board):
    record()
    columns = board.columns()
    kinds = {
        name: (info["type"].removeprefix("DATA_TYPE_"), info.get("domainInterval"))
        for name, info in columns.items()
    }
    assert kinds == {
        "lr": ("FLOAT64", {"minValue": 0.01, "maxValue": 0.1}),
        "layers": ("FLOAT64", {"minValue": 1, "maxValue": 9}),
        "size": ("FLOAT64", None),
        "mixed": ("STRING", None),
        "cell": ("STRING", None),
        "open": ("FLOAT64", None),
    }
    assert columns["size"]["domainDiscrete"] == [16, 32]
    assert columns["mixed"]["domainDiscrete"] == ["1", "auto"]
    assert board.metrics() == [("", "accuracy"), ("", "loss")]
    assert board.experiment()["description"] == "maximize accuracy by random"


def test_request_shows_trial_with_typed_hparams(record, board):
    record(trial())
    hparams, status, times = session(board)
    assert hparams == HPARAMS
    assert (status, times) == ("RUNNING", (NOON, 0))


def test_request_sets_status_by_condition(record, board):
    """One name of each kind; unit/test_katib_rules.py has the others."""
    for name, condition, metrics, status in (
        ("created", "CREATED", {}, "RUNNING"),
        ("succeeded", "SUCCEEDED", {"accuracy": "0.5"}, "SUCCESS"),
        ("killed", "KILLED", {}, "FAILURE"),
        ("five", 5, {"accuracy": "0.5"}, "SUCCESS"),
        ("six", 6, {"accuracy": "unavailable"}, "RUNNING"),
    ):
        record(trial(name, condition, metrics=metrics, end=END))
        _, shown, times = session(board, name)
        assert shown == status, name
        assert times == (NOON, 0 if status == "RUNNING" else NOON + 600), name


def stored_condition(database, workspace_id):
    """The condition of the only trial."""
    with database.transaction(workspace_id) as db:
        return db.execute(text("SELECT condition FROM katib_trials")).scalar()


def test_request_after_end_changes_status(record, board, database, workspace_id):
    record(trial())
    record(trial(condition="SUCCEEDED", end=END))
    assert session(board)[1:] == ("SUCCESS", (NOON, NOON + 600))
    record(trial(condition="RUNNING"))
    assert session(board)[1] == "SUCCESS"
    assert stored_condition(database, workspace_id) == TrialStatus.SUCCEEDED
    record(trial(condition="FAILED"))
    assert session(board)[1] == "FAILURE"


def test_request_with_other_hparams_keeps_status(record, board):
    record(trial(condition="SUCCEEDED", end=END))
    record(trial(condition="SUCCEEDED", end=END, values=VALUES | {"lr": "0.07"}))
    hparams, status, _ = session(board)
    assert (hparams["lr"], status) == (0.07, "SUCCESS")


def test_request_sent_again_writes_nothing(api, record):
    listed = [trial(), trial("random-zzzzzzzz", "SUCCEEDED")]
    record(*listed)
    (before,) = api.experiments()
    path = f"/experiments/{before['experiment_id']}/tensors"
    tag = api.request("GET", path).headers["ETag"]
    record(*reversed(listed))
    assert api.request("GET", path).headers["ETag"] == tag


def test_request_with_new_parameters_changes_columns(record, board):
    record(trial())
    changed = experiment()
    changed.spec.parameter_specs.parameters.add(name="more", parameter_type="CATEGORICAL")
    record(trial(), of=changed)
    assert "more" in board.columns()


def test_request_of_trials_without_times_is_recorded(record, board):
    record(trial(start="", values={}), trial("random-zzzzzzzz", start="long ago"))
    assert session(board)[2] == (0, 0)
    assert session(board, "random-zzzzzzzz")[2] == (0, 0)


def test_request_that_is_not_valid_records_nothing(api, record):
    for of, listed, error, words in (
        (experiment(""), [], Invalid, "experiment.name is empty"),
        (experiment("e\0"), [], Invalid, "NUL"),
        (experiment("e" * 10_001), [], TooLarge, "10000 characters"),
        (experiment(), [trial("")], Invalid, "trial_name is empty"),
        (experiment(), [trial("t\0")], Invalid, "NUL"),
        (experiment(), [trial()] * 10_001, TooLarge, "katib_trials_items_max"),
        (
            experiment(),
            [trial(values=dict.fromkeys(map(str, range(10_001)), "1"))],
            TooLarge,
            "session_hparams_items_max",
        ),
    ):
        with pytest.raises(error, match=words):
            record(*listed, of=of)
        assert api.experiments() == [], of


def test_request_of_hostile_values_is_recorded(record, board):
    hostile = {"lr": "nan", "layers": "-inf", "size": "ü\0", "more": "x" * 10_000, "": ""}
    record(trial(values=hostile))
    assert session(board)[1] == "RUNNING"
    assert board.groups()[NAME]["hparams"]["more"] == "x" * 10_000


def test_request_of_many_trials_is_recorded_in_groups(record, board, monkeypatch):
    monkeypatch.setattr(trials, "KATIB_TRANSACTION_TRIALS_MAX", 3)
    count = 7
    record(*(trial(f"t-{number}", values={"lr": "0.05"}) for number in range(count)))
    assert board.list(sliceSize=1)["totalSize"] == count


def test_suggestions_are_named_and_make_no_runs(api, katib, record):
    record()
    reply = GetSuggestionsReply()
    for value in ("0.1", "0.2"):
        reply.parameter_assignments.add(assignments=[{"name": "lr", "value": value}])
    reply.parameter_assignments.add(trial_name="given")
    katib.call(trials.record_suggestions, experiment(), reply)
    names = [each.trial_name for each in reply.parameter_assignments]
    assert names[2] == "given"
    assert len(set(names)) == 3
    assert {guess_experiment(name) for name in names[:2]} == {"random"}
    (listed,) = api.experiments()
    assert [run["run"] for run in api.get(listed["experiment_id"], "runs")["runs"]] == ["."]


def test_first_report_of_suggestion_shows_its_hparams(katib, board):
    reply = GetSuggestionsReply()
    reply.parameter_assignments.add(
        assignments=[{"name": k, "value": v} for k, v in VALUES.items()]
    )
    katib.call(trials.record_suggestions, experiment(), reply)
    (suggested,) = reply.parameter_assignments
    katib.report(suggested.trial_name, log("accuracy", 0.5))
    hparams, status, times = session(board, suggested.trial_name)
    assert (hparams, status) == (HPARAMS, "RUNNING")
    assert times == (NOON, 0)


def test_suggestions_that_no_trial_used_are_deleted(katib, database, workspace_id):
    for name in ("unused", "used", "new"):
        reply = GetSuggestionsReply()
        reply.parameter_assignments.add(trial_name=name)
        katib.call(trials.record_suggestions, experiment(), reply)
        if name == "used":
            katib.report("used", log("m", 1))
            old = text("UPDATE katib_trials SET created_at = now() - interval '31 days'")
            with database.transaction(workspace_id) as db:
                db.execute(old)
    with database.transaction(workspace_id) as db:
        rows = db.execute(text("SELECT run_id IS NULL FROM katib_trials ORDER BY 1")).scalars()
        assert list(rows) == [False, True]


def experiments_and_runs(api):
    listed = api.experiments()
    return {
        each["name"]: [run["run"] for run in api.get(each["experiment_id"], "runs")["runs"]]
        for each in listed
    }


def test_requests_leave_out_trial_whose_run_was_deleted(api, katib, record):
    """Controllers name it in every request that follows."""
    record(trial(), trial("random-other"))
    (listed,) = api.experiments()
    experiment_id = listed["experiment_id"]
    for run in (NAME, "."):
        path = f"/experiments/{experiment_id}/runs"
        assert api.request("DELETE", path, params={"run": run}).status_code == 204
    record(
        trial(condition="SUCCEEDED"),
        trial("random-new"),
        of=experiment(algorithm={"algorithm_name": "tpe"}),
    )
    katib.call(trials.set_trial_status, SetTrialStatusRequest(trial_name=NAME))
    runs = api.get(experiment_id, "runs")["runs"]
    assert [run["run"] for run in runs] == ["random-other", "random-new"]


def test_request_moves_trial_of_unknown_experiment(api, katib, record):
    katib.report("by-hand", log("accuracy", "0.50"), log("note", "x"))
    katib.report("by-hand", log("accuracy", 0.6, "0001-01-01T00:00:00Z"))
    before = katib.get("by-hand")
    assert experiments_and_runs(api) == {"katib": ["by-hand"]}
    record(trial("by-hand"))
    assert experiments_and_runs(api) == {"random": ["by-hand", "."], "katib": []}
    assert katib.get("by-hand") == before
    katib.report("by-hand", log("accuracy", 0.6, "0001-01-01T00:00:00Z"))
    assert katib.get("by-hand") == before
    katib.report("by-hand", log("accuracy", 0.7))
    record(trial("by-hand"))
    listed = api.experiments()
    (id_,) = [item["experiment_id"] for item in listed if item["name"] == "random"]
    read = api.get(id_, "scalars/data")["by-hand"]["accuracy"]
    assert (read["steps"], read["values"]) == ([0, 1, 2], [0.5, 0.6, 0.7])
    moved = HparamsClient(api, id_)
    assert session(moved, "by-hand")[:2] == (HPARAMS, "RUNNING")


def test_report_prefers_experiment_that_was_named(api, katib, record):
    katib.report("by-hand", log("accuracy", 1))
    reply = GetSuggestionsReply()
    reply.parameter_assignments.add(trial_name="by-hand")
    katib.call(trials.record_suggestions, experiment(), reply)
    katib.report("by-hand", log("accuracy", 2))
    assert experiments_and_runs(api) == {"random": ["by-hand"], "katib": ["by-hand"]}
    record(trial("by-hand"))
    assert experiments_and_runs(api)["katib"] == []
    assert sorted(katib.values("by-hand")) == ["1", "2"]


def test_request_moves_no_trial_that_other_request_named(api, katib, record):
    record(trial(), of=experiment("first"))
    katib.report(NAME, log("accuracy", 1))
    record(trial(), of=experiment("second"))
    assert katib.values(NAME) == []
    assert katib.values(NAME, experiment="first") == ["1"]
    assert experiments_and_runs(api) == {"second": [".", NAME], "first": [".", NAME]}


def test_request_leaves_uploaded_points_of_moved_trial(api, katib, record):
    katib.report("by-hand", log("accuracy", 0.5))
    (made,) = api.experiments()
    of = stream("by-hand")
    api.write(made["experiment_id"], segment(of, 0, 9, scalars("accuracy", [7])))
    record(trial("by-hand"))
    assert katib.values("by-hand") == ["0.5"]
    kept = api.get(made["experiment_id"], "scalars/data")["by-hand"]["accuracy"]
    assert kept["steps"] == [7]


LATE = "2026-01-31T12:30:00Z"


def test_report_of_collector_ends_session(katib, record, board):
    record(trial(condition="CREATED"))
    katib.report(NAME, log("accuracy", 0.5), log("accuracy", 0.6, LATE))
    assert session(board)[1:] == ("SUCCESS", (NOON, NOON + 1800))
    record(trial(condition="FAILED"))
    assert session(board)[1] == "FAILURE"


def test_running_trial_runs_until_a_request_ends_it(katib, record, board):
    """Training code may buffer, and so report several values of a metric at once."""
    record(trial())
    for number in range(2):
        katib.report(NAME, log("accuracy", number), log("accuracy", 0.6, LATE))
        assert session(board)[1:] == ("RUNNING", (NOON, 0))
        record(trial())
    record(trial(condition="SUCCEEDED", end=END))
    assert session(board)[1:] == ("SUCCESS", (NOON, NOON + 600))


def test_request_takes_supposed_end_back(katib, record, board):
    katib.report(NAME, log("accuracy", 0.5), log("accuracy", 0.6, LATE))
    assert session(board)[1:] == ("SUCCESS", (NOON, NOON + 1800))
    record(trial())
    assert session(board)[1:] == ("RUNNING", (NOON, 0))


def test_report_of_unavailable_metric_is_failure(katib, record, board):
    """Requests leave out such a trial; one that was on its way still says that it runs."""
    record(trial())
    katib.report(NAME, log("accuracy", "unavailable", "0001-01-01T00:00:00Z"))
    record(trial(start=END))
    assert session(board)[1] == "FAILURE"
    assert katib.values(NAME) == ["unavailable"]


def test_reports_while_training_leave_session_running(katib, board):
    katib.report(NAME, log("accuracy", 0.5), log("loss", 1))
    katib.report(NAME, log("accuracy", 0.6), log("accuracy", 0.7))
    assert session(board)[1] == "RUNNING"


def test_report_after_supposed_end_takes_it_back(katib, board):
    katib.report(NAME, log("accuracy", 0.5), log("accuracy", 0.6))
    katib.report(NAME, log("accuracy", 0.7))
    assert session(board)[1] == "RUNNING"


def test_status_of_trial_is_recorded_once(katib, record, board, database, workspace_id):
    record(trial())
    request = SetTrialStatusRequest(trial_name=NAME)
    katib.call(trials.set_trial_status, request)
    hparams, status, times = session(board)
    assert (hparams, status, times[0]) == (HPARAMS, "SUCCESS", NOON)
    katib.call(trials.set_trial_status, request)
    record(trial(condition="SUCCEEDED"))
    assert session(board) == (hparams, status, times)
    assert stored_condition(database, workspace_id) == TrialStatus.EARLYSTOPPED


def test_status_of_unknown_trial_creates_it(katib, board):
    katib.call(trials.set_trial_status, SetTrialStatusRequest(trial_name=NAME))
    assert session(board)[1] == "SUCCESS"
    with pytest.raises(Invalid, match="trial_name is empty"):
        katib.call(trials.set_trial_status, SetTrialStatusRequest())


def logs_of(katib, listed, n=3):
    names = [each.name for each in listed]
    logs = katib.call(trials.objective_logs, experiment(), names, n)
    return [log.tolist() for log in logs]


def test_objective_logs_are_first_ones_in_order_of_trials(katib, record):
    early = "2026-01-31T11:00:00Z"
    listed = [trial(f"t-{number}") for number in range(3)]
    record(*listed)
    katib.report("t-2", log("accuracy", 1), log("loss", 9), log("accuracy", 2, early))
    katib.report("t-2", log("accuracy", "x", early), log("accuracy", 4))
    katib.report("t-0", log("accuracy", 7))
    seven, none, three = logs_of(katib, listed)
    assert (seven, none, three) == ([7], [], [2, pytest.approx(math.nan, nan_ok=True), 1])
    assert logs_of(katib, [trial("t-2"), trial("t-9"), trial("t-0")], 1) == [[2], [], [7]]
    assert logs_of(katib, []) == []


def test_objective_logs_over_limit_are_refused(katib, record, monkeypatch):
    monkeypatch.setattr(limits, "KATIB_READ_LOGS_MAX", 5)
    listed = [trial(f"t-{number}") for number in range(3)]
    record(*listed)
    for each in listed:
        katib.report(each.name, *[log("accuracy", number) for number in range(3)])
    assert logs_of(katib, listed, 1) == [[0]] * 3
    with pytest.raises(TooLarge, match="set a smaller start_step"):
        logs_of(katib, listed, 2**31 - 1)


def test_objective_logs_need_right_to_read(client, workspace_id):
    katib = KatibClient(client.app.state.ingest, KatibGrant(workspace_id, None, may_read=False))
    with pytest.raises(Forbidden, match="lacks the scope read"):
        logs_of(katib, [])
