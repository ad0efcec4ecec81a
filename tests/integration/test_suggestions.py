"""Suggestions of every algorithm: as many as asked for, within bounds, on steps, without repeats."""

from __future__ import annotations

import json
import math
import re
import statistics

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.sweeps import (
    ALGORITHMS,
    Sweep,
    check_value,
    experiment,
    parameter,
    rows_of,
    sphere,
    trial,
)
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import suggest

MODELS = ("tpe", "multivariate-tpe", "cmaes", "bayesianoptimization")
HYPERBAND = {"r_l": 9, "resource_name": "epochs"}
FEW = {"n_startup_trials": 2, "n_initial_points": 2}
"""Settings that make models answer at once."""


def options(algorithm):
    names = {"tpe": "n_startup_trials", "multivariate-tpe": "n_startup_trials"}
    names["bayesianoptimization"] = "n_initial_points"
    if algorithm == "hyperband":
        return HYPERBAND
    return {names[algorithm]: 2} if algorithm in names else {}


def spec_of(algorithm, *parameters, **spec):
    extra = [parameter("epochs", "int", 1, 9)] if algorithm == "hyperband" else []
    given_settings = options(algorithm) | spec.pop("settings", {})
    return experiment(algorithm, *parameters, *extra, settings=given_settings, **spec)


def request(message, trials=(), count=1, total=0):
    return pb.GetSuggestionsRequest(
        experiment=message,
        trials=trials,
        current_request_number=count,
        total_request_number=total,
    )


def ask(message, trials=(), count=1, total=0):
    return rows_of(suggest(request(message, trials, count, total)))


EVERY_KIND = (
    parameter("int", "int", 1, 5),
    parameter("int-step", "int", 1, 6, step=2),
    parameter("int-log", "int", 1, 5, step=2, distribution=pb.LOG_UNIFORM),
    parameter("double", "double", 1, 5, distribution=pb.UNIFORM),
    parameter("double-step", "double", 5, 10, step=0.8),
    parameter("double-log", "double", "1e-5", 1, distribution=pb.LOG_UNIFORM),
    parameter("double-log-step", "double", 1, 11, step=2.5, distribution=pb.LOG_UNIFORM),
    parameter("normal", "double", -5, 10, distribution=pb.NORMAL),
    parameter("normal-step", "int", 5, 10, distribution=pb.NORMAL),
    parameter("log-normal", "double", 1, 5, step=0.5, distribution=pb.LOG_NORMAL),
    parameter("constant", "double", 3, 3),
    parameter("categorical", "categorical", "cat1", "cat2", "cat3"),
    parameter("discrete", "discrete", "3", "0.20", "6"),
)
STEPPED = tuple(
    spec
    for spec in EVERY_KIND
    if spec.parameter_type != pb.DOUBLE or spec.feasible_space.step or spec.name == "constant"
)


def loss(assignments):
    return float(assignments["int"]) + abs(float(assignments.get("normal", 0)))


@pytest.fixture(autouse=True)
def _patient_models(monkeypatch):
    """Models answer however busy the machine is, so that replies are the same everywhere."""
    monkeypatch.setattr("tbservice.katib.suggestions.task.SUGGESTION_SECONDS", 600.0)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sweep_keeps_to_every_kind_of_parameter(algorithm):
    parameters = STEPPED if algorithm == "grid" else EVERY_KIND
    sweep = Sweep(spec_of(algorithm, *parameters), loss, trials=10, parallel=4)
    sweep.run(suggest)
    assert len(sweep.items) == 10
    for item in sweep.items:
        assert [*item.assignments][: len(parameters)] == [spec.name for spec in parameters]
        for spec in parameters:
            check_value(spec, item.assignments[spec.name])
    assert len({(*item.assignments.items(),) for item in sweep.items}) == 10


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "hyperband"])
def test_small_space_is_used_up_before_repeats(algorithm):
    parameters = (parameter("int", "int", 1, 4), parameter("y", "int", 0, 4, step=2))
    sweep = Sweep(spec_of(algorithm, *parameters), loss, trials=12, parallel=5)
    sweep.run(suggest)
    assert len({(*item.assignments.items(),) for item in sweep.items}) == 12
    trials = [trial(item.name, item.assignments, 1) for item in sweep.items]
    assert len(ask(sweep.experiment, trials, count=3, total=15)) == 3  # there are no others


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_request_repeated_gets_same_reply(algorithm):
    parameters = STEPPED if algorithm == "grid" else EVERY_KIND
    message = spec_of(algorithm, *parameters)
    first = ask(message, count=4, total=4)
    trials = [trial(f"t{i}", row, i, end=f"2026-01-01T00:00:0{i}Z") for i, row in enumerate(first)]
    again = ask(message, trials, count=2, total=6)
    assert ask(message, count=4, total=4) == first
    assert ask(message, trials, count=2, total=6) == again
    assert not [row for row in again if row in first]


def test_reply_differs_by_experiment_unless_seeded():
    def replies(**given_settings):
        messages = [
            experiment("random", *EVERY_KIND, name=name, settings=given_settings) for name in "ab"
        ]
        return [ask(message) for message in messages]

    assert replies()[0] != replies()[1]
    assert replies(random_state=7)[0] == replies(random_state=7)[1]
    assert replies(random_state=7) != replies(random_state=8)


def test_grid_skips_what_trials_have():
    message = spec_of("grid", parameter("int", "int", 1, 40))
    ahead = ask(message, count=10, total=20)
    trials = [trial(f"t{i}", row) for i, row in enumerate(ahead)]
    assert not [row for row in ask(message, trials, count=15, total=15) if row in ahead]


def test_grid_has_more_points_than_floats_count():
    specs = [parameter(f"p{i}", "int", 0, 2**62) for i in range(50)]
    first = ask(spec_of("grid", *specs), count=2, total=2)
    assert first[0] != first[1]
    trials = [trial(f"t{i}", row) for i, row in enumerate(first)]
    assert ask(spec_of("grid", *specs), trials, count=2, total=4)[0] not in first


@pytest.mark.parametrize("algorithm", ["random", "grid", "sobol"])
def test_reply_after_trials_were_left_out_has_no_repeats(algorithm):
    message = spec_of(algorithm, parameter("int", "int", 1, 40))
    first = ask(message, count=10, total=10)
    second = ask(message, count=10, total=20)  # metrics of the first ten were unavailable
    if algorithm == "grid":
        assert not [row for row in second if row in first]
    assert second != first


def test_numbers_of_old_and_new_versions_are_understood():
    message = spec_of("grid", parameter("int", "int", 1, 9))
    new = pb.GetSuggestionsRequest(
        experiment=message, current_request_number=2, total_request_number=6
    )
    between = pb.GetSuggestionsRequest(
        experiment=message, request_number=2, current_request_number=2, total_request_number=6
    )
    old = pb.GetSuggestionsRequest(experiment=message, request_number=2, current_request_number=6)
    replies = [rows_of(suggest(m)) for m in (new, between, old)]
    assert replies[0] == replies[1] == replies[2]
    assert len(replies[0]) == 2
    assert replies[0] != ask(message, count=2, total=2)


def test_reply_is_empty_if_nothing_is_wanted():
    for algorithm in (*ALGORITHMS, "darts"):
        assert ask(spec_of(algorithm, parameter("int", "int", 1, 9)), count=0) == []


@pytest.mark.parametrize("algorithm", MODELS)
def test_model_ignores_trials_without_number(algorithm):
    message = spec_of(algorithm, parameter("int", "int", 1, 99), parameter("b", "double", 0, 1))
    rows = ask(message, count=9, total=9)
    values = ["unavailable", "", "nan", "inf", "1e999", "1_0", " 1", "-", None]
    conditions = [pb.TrialStatus.SUCCEEDED] * 8 + [pb.TrialStatus.FAILED]
    trials = [
        trial(f"t{i}", row, value, condition)
        for i, (row, value, condition) in enumerate(zip(rows, values, conditions, strict=True))
    ]
    trials.append(pb.Trial())
    trials.append(trial("foreign", {"other": "1"}, 0.5))
    trials.append(trial("huge", rows[0], "1.7e308"))
    trials.append(trial("low", rows[1], "-1.7e308"))
    trials.append(trial("middle", rows[2], "0"))
    trials.append(trial("early", rows[3], "1", pb.TrialStatus.EARLYSTOPPED))
    trials.append(trial("early in 0.13", rows[4], "1", pb.TrialStatus.METRICSUNAVAILABLE))
    assert len(ask(message, trials, count=3)) == 3


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        *((algorithm, pb.MAXIMIZE) for algorithm in MODELS),
        ("tpe", pb.MINIMIZE),
        ("tpe", pb.UNKNOWN),
    ],
)
def test_model_learns_from_own_metric_of_trial(algorithm, kind):
    parameters = (parameter("int", "int", 0, 1000), parameter("b", "int", 0, 1000))
    message = spec_of(algorithm, *parameters, kind=kind)
    message.spec.objective.objective_metric_name = ""
    sweep = Sweep(message, lambda row: float(row["int"]) + float(row["b"]), trials=24)
    values = sweep.run(suggest)
    is_better = sum(values[-8:]) > sum(values[:8])
    assert is_better == (kind == pb.MAXIMIZE)


@pytest.mark.parametrize("condition", [pb.TrialStatus.EARLYSTOPPED, 5])
def test_early_stopped_trials_of_any_version_teach(condition):
    message = spec_of("tpe", parameter("int", "int", 0, 1000))
    trials = [
        trial(f"t{i}", {"int": str(i * 10)}, i * 10, condition, end=f"2026-01-01T00:{i:02}:00Z")
        for i in range(60)
    ]
    rows = ask(message, trials, count=10)
    assert sorted(int(row["int"]) for row in rows)[5] < 200


@pytest.mark.parametrize(
    "given_settings",
    [
        {"base_estimator": "RF"},
        {"base_estimator": "ET", "acq_func": "LCB"},
        {"base_estimator": "GBRT", "acq_func": "PI"},
        {"acq_func": "EI", "acq_optimizer": "sampling"},
        {"acq_func": "EIps"},
        {"acq_func": "PIps"},
    ],
)
def test_bayesian_optimization_takes_its_settings(given_settings):
    parameters = (parameter("int", "double", 0, 1), parameter("b", "categorical", "u", "v"))
    message = spec_of("bayesianoptimization", *parameters, settings=given_settings)
    trials = [
        trial(
            f"t{i}", {"int": str(i / 12), "b": "uv"[i % 2]}, i / 12, end=f"2026-01-01T00:{i:02}:00Z"
        )
        for i in range(12)
    ]
    rows = ask(message, trials, count=2)
    assert min(float(row["int"]) for row in rows) < 0.4


@pytest.mark.parametrize("strategy", ["none", "ipop", "bipop"])
def test_cmaes_restarts_when_it_has_converged(strategy):
    """Equal trials make it converge; a restart looks elsewhere."""
    message = spec_of(
        "cmaes",
        parameter("int", "double", 0, 1, step="0.5"),
        parameter("b", "double", 0, 1),
        settings={"restart_strategy": strategy, "sigma": 2},
    )
    trials = [
        trial(
            f"t{i}", {"int": "0.5", "b": "0.5"}, 1, end=f"2026-01-01T00:{i // 60:02}:{i % 60:02}Z"
        )
        for i in range(132)
    ]
    values = [float(row["b"]) for row in ask(message, trials, count=6)]
    assert (max(values) - min(values) > 0.2) == (strategy != "none")


def test_cmaes_converges_without_state():
    """A study that is rebuilt without its optimizer stays at 6.8 on such a function."""
    parameters = (parameter("x", "double", -10, 10), parameter("y", "double", -10, 10))
    losses = Sweep(experiment("cmaes", *parameters), sphere, 120).run(suggest)
    assert statistics.median(losses[-40:]) < 0.1


def test_models_that_are_late_answer_at_random(monkeypatch):
    monkeypatch.setattr("tbservice.katib.suggestions.task.SUGGESTION_SECONDS", -math.inf)
    trials = [
        trial(f"t{i}", {"int": str(i), "b": str(i)}, i, end=f"2026-01-01T00:{i:02}:00Z")
        for i in range(60)
    ]
    for algorithm in ("tpe", "multivariate-tpe", "bayesianoptimization"):
        parameters = (parameter("int", "int", 0, 1000), parameter("b", "int", 0, 1000))
        rows = ask(spec_of(algorithm, *parameters), trials, count=40)
        assert 300 < statistics.median(int(row["int"]) for row in rows) < 700


def test_long_names_and_values_come_back_unchanged():
    name, item = "n" * 10_000, "v" * 10_000
    for algorithm in ("random", "tpe", "bayesianoptimization", "grid"):
        message = spec_of(algorithm, parameter(name, "categorical", item, "b"))
        assert {row[name] for row in ask(message, count=2, total=2)} == {item, "b"}


CROWD = [pb.Trial()] * 10_001
SPACE = parameter("a", "int", 1, 9)

REFUSED = {
    "nothing": (pb.GetSuggestionsRequest(current_request_number=1), "unknown algorithm name "),
    "no parameters": (request(experiment("random")), "the experiment has no parameters"),
    "negative": (
        request(experiment("random", SPACE), count=-1),
        "request numbers must not be negative",
    ),
    "negative total": (
        request(experiment("random", SPACE), total=-1),
        "request numbers must not be negative",
    ),
    "huge": (
        request(experiment("random", SPACE), count=2**31 - 1),
        "2147483647 suggestions wanted, at most 1000 at a time",
    ),
    "huge total": (
        request(experiment("sobol", SPACE), total=2**31 - 1),
        "2147483647 suggestions wanted altogether, at most 100000 for an experiment",
    ),
    "trials": (
        request(experiment("tpe", SPACE), CROWD),
        "10001 trials in the request, at most 10000: begin a new experiment",
    ),
    "bytes": (
        request(experiment("random", parameter("n" * 10_000, "int", 1, 9)), count=1000),
        "the reply would have 10025000 bytes, at most 4194304: ask for fewer",
    ),
    "setting": (
        request(experiment("tpe", SPACE, settings={"n_ei_candidates": "1e999"})),
        "failed to validate n_ei_candidates(1e999)",
    ),
}
"""Settings and bounds have more: unit/test_suggestion_validation.py and test_suggestion_space.py."""


@pytest.mark.parametrize("name", REFUSED)
def test_request_is_refused_with_reason(name):
    message, text = REFUSED[name]
    with pytest.raises(Invalid, match="^" + re.escape(text)):
        suggest(message)


TEXTS = st.one_of(
    st.sampled_from(["1", "0", "-1", "0.5", "1e999", "nan", "inf", "", "x", "1e-400", "9" * 50]),
    st.text(max_size=5),
)
SPECS = st.builds(
    lambda name, kind, low, high, items, step, distribution: pb.ParameterSpec(
        name=name,
        parameter_type=kind,
        feasible_space=pb.FeasibleSpace(
            min=low, max=high, list=items, step=step, distribution=distribution
        ),
    ),
    st.sampled_from(["a", "b", "c", "epochs", ""]),
    st.integers(0, 5),
    TEXTS,
    TEXTS,
    st.lists(TEXTS, max_size=3),
    TEXTS,
    st.integers(0, 5),
)
TRIALS = st.builds(
    lambda values, value, condition, end: trial(
        "t", dict(zip("abc", values, strict=False)), value, condition, end=end
    ),
    st.lists(TEXTS, max_size=3),
    TEXTS,
    st.integers(0, 9),
    TEXTS,
)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    algorithm=st.sampled_from([*ALGORITHMS, "darts"]),
    specs=st.lists(SPECS, min_size=1, max_size=3),
    given_settings=st.dictionaries(
        st.sampled_from(["random_state", "sigma", "gamma", "r_l", "eta", "resource_name"]), TEXTS
    ),
    trials=st.lists(TRIALS, max_size=15),
    numbers=st.tuples(*[st.integers(-1, 3)] * 3),
)
def test_hostile_request_is_answered_or_refused(algorithm, specs, given_settings, trials, numbers):
    message = pb.GetSuggestionsRequest(
        experiment=experiment(algorithm, *specs, settings=FEW | given_settings),
        trials=trials,
        request_number=numbers[0],
        current_request_number=numbers[1],
        total_request_number=numbers[2],
    )
    try:
        reply = suggest(message)
    except Invalid:
        return
    assert len(reply.parameter_assignments) == (numbers[0] or numbers[1])


def test_darts_formats_settings_and_search_space():
    """The request of Katib's test_darts_service.py."""
    message = experiment("darts", settings={"num_epoch": 10, "batch_size": "None"})
    message.spec.nas_config.graph_config.num_layers = 3
    sizes = pb.Operation.ParameterSpecs(parameters=[parameter("filter_size", "categorical", 3, 5)])
    message.spec.nas_config.operations.operation.add(
        operation_type="separable_convolution", parameter_specs=sizes
    )
    message.spec.nas_config.operations.operation.add(operation_type="skip_connection")
    rows = ask(message, count=2)
    assert rows[0] == rows[1]
    assert rows[0]["num-layers"] == "3"
    assert '"' not in "".join(rows[0].values())
    assert json.loads(rows[0]["search-space"].replace("'", '"')) == [
        "separable_convolution_3x3",
        "separable_convolution_5x5",
        "skip_connection",
    ]
    values = json.loads(rows[0]["algorithm-settings"].replace("'", '"'))
    assert values["num_epoch"] == "10"
    assert values["batch_size"] is None
    assert values["w_weight_decay"] == 3e-4


def test_handler_job_answers_as_function_does():
    message = request(spec_of("random", *EVERY_KIND), count=2, total=2)
    from tbservice.katib.suggestions import handler_jobs  # noqa: PLC0415 - loads all libraries

    answer = handler_jobs.JOBS["katib_suggest"](None, message.SerializeToString())
    assert pb.GetSuggestionsReply.FromString(answer) == suggest(message)
