"""The requests of Katib's own unit tests, sent to the gRPC port, and what those tests assert.

Names, values and texts are those of `test/unit/v1beta1/suggestion` and `earlystopping` of
https://github.com/kubeflow/katib (Apache License 2.0); the code is not. Left out are tests of
functions inside Katib, and those of ENAS and PBT, which are not served.
"""

import json
from contextlib import ExitStack

import pytest

from support.grpc_calls import failure, live_grpc_service
from support.katib_client import katib_client
from support.sweeps import check_value, darts_experiment, experiment, parameter, rows_of
from tbservice.katib import katib_pb2 as pb

PARAM_1 = parameter("param-1", "int", 1, 5)
LISTS = (
    parameter("param-2", "categorical", "cat1", "cat2", "cat3"),
    parameter("param-3", "discrete", 3, 2, 6),
)
WITH_STEP = (PARAM_1, *LISTS, parameter("param-4", "double", 1, 5, step=1))
WITHOUT_STEP = (PARAM_1, *LISTS, parameter("param-4", "double", 1, 5))
HYPEROPT = (
    *WITHOUT_STEP,
    parameter("param-5", "double", 1, 5, step="0.5", distribution=pb.LOG_UNIFORM),
    parameter("param-6", "double", 1, 5, distribution=pb.LOG_UNIFORM),
    parameter("param-7", "double", 5, 10, step="0.8", distribution=pb.UNIFORM),
    parameter("param-8", "double", 5, 10, distribution=pb.UNIFORM),
)
ROWS = (
    {"param-1": "2", "param-2": "cat1", "param-3": "2", "param-4": "3.44"},
    {"param-1": "3", "param-2": "cat2", "param-3": "6", "param-4": "4.44"},
)


@pytest.fixture(scope="module")
def service(servers, tmp_path_factory):
    """A running service with a gRPC port: the service, and the port."""
    directory = tmp_path_factory.mktemp("katib")
    with (
        servers.database() as url,
        servers.settings(url) as settings,
        live_grpc_service(settings, directory) as live,
    ):
        yield live


@pytest.fixture
def katib(service):
    """A client with a workspace of its own: the tests call their experiment `test`, as Katib's do."""
    with ExitStack() as stack:
        yield katib_client(stack, service[1], service[0].new_owner())


def experiment_of(algorithm, *parameters, settings=None, **spec):
    """Return an experiment whose own objective has no name."""
    message = experiment(
        algorithm, *parameters, name="test", kind=pb.MAXIMIZE, settings=settings, **spec
    )
    message.spec.objective.objective_metric_name = ""
    message.spec.objective.goal = 0.9
    return message


def observed(rows, metrics=("metric=1", "metric=2"), condition=pb.TrialStatus.CREATED):
    """Return the two trials of the tests; the metric of most is not the objective of the trials."""
    trials = []
    values = (("435", "5643"), ("123", "3028"))
    for name, row, pair in zip(("test-asfjh", "test-234hs"), rows, values, strict=True):
        item = pb.Trial(name=name)
        item.spec.objective.type = pb.MAXIMIZE
        item.spec.objective.objective_metric_name = "metric-2"
        for key, value in row.items():
            item.spec.parameter_assignments.assignments.add(name=key, value=value)
        item.status.condition = condition
        for metric, value in zip(metrics, pair, strict=True):
            item.status.observation.metrics.add(name=metric, value=value)
        trials.append(item)
    return trials


def suggest(katib, message, trials):
    """Ask for two suggestions, without a total; check and return them."""
    request = pb.GetSuggestionsRequest(experiment=message, trials=trials, current_request_number=2)
    rows = rows_of(katib.suggest(request))
    assert len(rows) == 2
    for row in rows:
        for spec in message.spec.parameter_specs.parameters:
            check_value(spec, row[spec.name])
    return rows


TPE = {"n_startup_trials": 20, "n_ei_candidates": 10, "random_state": 71}


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("tpe", TPE),
        ("multivariate-tpe", TPE),
        ("cmaes", {"restart_strategy": "ipop", "sigma": 2, "random_state": 71}),
        ("random", {"random_state": 71}),
        ("grid", {"random_state": 71}),
    ],
)
def test_suggestions_of_optuna_service(katib, algorithm, settings):
    message = experiment_of(algorithm, *WITH_STEP, settings=settings)
    first = suggest(katib, message, [])
    finished = observed(first, ("metric-1", "metric-2"), pb.TrialStatus.SUCCEEDED)
    assert not [row for row in suggest(katib, message, finished) if row in first]


HYPEROPT_SETTINGS = {
    "random_state": 10,
    "gamma": 0.25,
    "prior_weight": "1.0",
    "n_EI_candidates": 24,
}


@pytest.mark.parametrize(
    ("algorithm", "parameters", "settings"),
    [
        ("tpe", HYPEROPT, HYPEROPT_SETTINGS),
        ("bayesianoptimization", WITHOUT_STEP, {"random_state": 10}),
        ("hyperband", WITHOUT_STEP, {"r_l": 10, "resource_name": "--num-epochs"}),
    ],
    ids=["hyperopt", "skopt", "hyperband"],
)
def test_suggestions_of_other_services(katib, algorithm, parameters, settings):
    suggest(katib, experiment_of(algorithm, *parameters, settings=settings), observed(ROWS))


def test_suggestions_of_darts_service(katib):
    message = darts_experiment(
        name="darts-experiment",
        settings={"num_epoch": 10},
        kind=pb.MAXIMIZE,
        parallel_trial_count=1,
        max_trial_count=1,
    )
    message.spec.objective.objective_metric_name = "Best-Genotype"
    request = pb.GetSuggestionsRequest(experiment=message, current_request_number=1)
    (row,) = rows_of(katib.suggest(request))
    assert json.loads(row["algorithm-settings"].replace("'", '"'))["num_epoch"] == "10"
    assert row["num-layers"] == "3"
    assert json.loads(row["search-space"].replace("'", '"')) == [
        "separable_convolution_3x3",
        "separable_convolution_5x5",
    ]


STEP_1 = parameter("param-2", "double", 1, 5, step=1)
NUMBERS = (PARAM_1, STEP_1)
BAYESIAN = "bayesianoptimization"

VALID = [
    experiment_of(
        "tpe", settings={"n_startup_trials": 5, "n_ei_candidates": 24, "random_state": 1}
    ),
    experiment_of("tpe", settings=HYPEROPT_SETTINGS),
    experiment_of(
        "multivariate-tpe",
        settings={"n_startup_trials": 5, "n_ei_candidates": 24, "random_state": 1},
    ),
    experiment_of(
        "cmaes",
        *NUMBERS,
        settings={"restart_strategy": "ipop", "sigma": 0.1, "random_state": 10},
        max_trial_count=20,
    ),
    experiment_of("random", settings={"random_state": 10}, max_trial_count=23),
    experiment_of("grid", PARAM_1, settings={"random_state": 10}, max_trial_count=5),
    experiment_of(BAYESIAN, settings={"random_state": 10}),
]


@pytest.mark.parametrize(
    "message", VALID, ids=lambda message: message.spec.algorithm.algorithm_name
)
def test_valid_settings_are_accepted(katib, message):
    katib.validate(message)


NOT_NEGATIVE = "{} should be great or equal than zero"
NOT_SUPPORTED = "{} {} is not supported in Bayesian optimization"
REFUSED = [
    ("invalid", {}, (), 1, "unknown algorithm name invalid"),
    ("unknown", {}, (), 0, "unknown algorithm name unknown"),
    ("tpe", {"invalid": 5}, (), 100, None),
    ("tpe", {"n_startup_trials": -1}, (), 100, None),
    ("tpe", {"n_ei_candidate": -1}, (), 100, None),
    ("tpe", {"random_state": -1}, (), 100, NOT_NEGATIVE.format("random_state")),
    ("tpe", {"gamma": 1.5}, (), 0, "gamma should be in the range of (0, 1)"),
    ("tpe", {"n_EI_candidates": 0}, (), 0, "n_EI_candidates should be great than zero"),
    ("tpe", {"prior_weight": "aaa"}, (), 0, "failed to validate prior_weight(aaa)*"),
    ("cmaes", {"invalid": "invalid", "sigma": 0.1}, NUMBERS, 100, None),
    ("cmaes", {"restart_strategy": "invalid", "sigma": 0.1}, NUMBERS, 15, None),
    ("cmaes", {"restart_strategy": "None", "sigma": -10}, NUMBERS, 55, None),
    ("cmaes", {"sigma": 0.2, "random_state": -20}, NUMBERS, 25, None),
    ("cmaes", {"sigma": 0.2}, (PARAM_1,), 5, None),
    ("random", {"unknown_conf": 1111}, (), 0, "unknown setting unknown_conf for algorithm random"),
    ("random", {"random_state": -1}, (), 33, None),
    ("grid", {"invalid": "invalid"}, (PARAM_1,), 33, None),
    ("grid", {"random_state": -1}, (PARAM_1,), 10, None),
    ("grid", {"random_state": 1}, (parameter("param-1", "double", 1, 5),), 26, None),
    ("grid", {"random_state": 1}, NUMBERS, 26, None),
    (
        BAYESIAN,
        {"unknown_conf": 1111},
        (),
        0,
        f"unknown setting unknown_conf for algorithm {BAYESIAN}",
    ),
    *[
        (BAYESIAN, {name: "unknown"}, (), 0, NOT_SUPPORTED.format(name, "unknown"))
        for name in ("base_estimator", "acq_func", "acq_optimizer")
    ],
    *[
        (BAYESIAN, {name: -1}, (), 0, NOT_NEGATIVE.format(name))
        for name in ("n_initial_points", "random_state")
    ],
]


@pytest.mark.parametrize(
    ("algorithm", "settings", "parameters", "trials", "text"),
    REFUSED,
    ids=[f"{algorithm} {settings}" for algorithm, settings, *_ in REFUSED],
)
def test_invalid_settings_are_refused(katib, algorithm, settings, parameters, trials, text):
    message = experiment_of(algorithm, *parameters, settings=settings, max_trial_count=trials)
    status, said, _ = failure(lambda: katib.validate(message))
    assert status == "INVALID_ARGUMENT"
    assert matches(said, text)


def matches(said, text):
    """Whether a message is what a test of Katib expects: None if it compares the status only."""
    if text is None:
        return bool(said)
    return said.startswith(text[:-1]) if text.endswith("*") else said == text


@pytest.mark.parametrize(
    ("algorithm", "settings", "text"),
    [
        ("medianstop", {"min_trials_required": 2, "start_step": 5}, ""),
        ("unknown", {}, "unknown algorithm name unknown"),
        (
            "medianstop",
            {"unknown_conf": 100},
            "unknown setting unknown_conf for algorithm medianstop",
        ),
        (
            "medianstop",
            {"min_trials_required": 0},
            "min_trials_required must be greater than zero (>0)",
        ),
        ("medianstop", {"start_step": 0}, "start_step must be greater or equal than one (>=1)"),
    ],
)
def test_settings_of_medianstop_service(katib, algorithm, settings, text):
    request = pb.ValidateEarlyStoppingSettingsRequest()
    request.early_stopping.algorithm_name = algorithm
    for name, value in settings.items():
        request.early_stopping.algorithm_settings.add(name=name, value=str(value))
    if text:
        answer = failure(lambda: katib.call("ValidateEarlyStoppingSettings", request))
        assert answer[:2] == ("INVALID_ARGUMENT", text)
    else:
        katib.call("ValidateEarlyStoppingSettings", request)


def test_rules_of_medianstop_service(katib):
    """Of an experiment without specification, and with a DBManager whose name is of nobody."""
    request = pb.GetEarlyStoppingRulesRequest(
        experiment=pb.Experiment(name="test"),
        trials=[pb.Trial(name="test-asfjh"), pb.Trial(name="test-234hs")],
        db_manager_address="katib-db-manager.kubeflow:6789",
    )
    assert not katib.call("GetEarlyStoppingRules", request).early_stopping_rules
