"""Validation of Katib's experiments, with the texts that Katib's own tests compare."""

from __future__ import annotations

import re
import sys

import pytest

from support.subprocesses import run_to_end
from support.sweeps import ALGORITHMS, experiment, parameter
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import validate

INT = parameter("param-1", "int", 1, 5)
PAIR = (INT, parameter("param-2", "int", 9, 10))
HYPERBAND = {"r_l": 9, "resource_name": "param-1"}


def operation(kind="separable_convolution", *parameters):
    return pb.Operation(
        operation_type=kind, parameter_specs=pb.Operation.ParameterSpecs(parameters=parameters)
    )


def darts(*operations, **settings):
    message = experiment("darts", settings=settings)
    message.spec.nas_config.operations.operation.extend(operations)
    return message


VALID = {
    "random": experiment("random", settings={"random_state": 10}),
    "tpe": experiment("tpe", settings={"n_startup_trials": 5, "n_ei_candidates": 24}),
    "tpe as in hyperopt": experiment(
        "tpe",
        settings={
            "random_state": 10,
            "gamma": 0.25,
            "prior_weight": "1.0",
            "n_EI_candidates": 24,
        },
    ),
    "multivariate-tpe": experiment("multivariate-tpe", settings={"n_ei_candidates": 0}),
    "cmaes": experiment("cmaes", *PAIR, settings={"restart_strategy": "ipop", "sigma": 0.1}),
    "cmaes without restarts": experiment("cmaes", *PAIR, settings={"restart_strategy": "None"}),
    "grid": experiment("grid", INT, settings={"random_state": 10}, max_trial_count=5),
    "sobol": experiment("sobol", INT),
    "bayesianoptimization": experiment(
        "bayesianoptimization",
        settings={
            "base_estimator": "RF",
            "n_initial_points": 0,
            "acq_func": "PIps",
            "acq_optimizer": "lbfgs",
            "random_state": 10,
        },
    ),
    "hyperband": experiment("hyperband", INT, settings=HYPERBAND, parallel_trial_count=9),
    "hyperband rounded as in Katib": experiment(
        "hyperband", INT, settings=HYPERBAND | {"r_l": 1000, "eta": 10}, parallel_trial_count=100
    ),
    "hyperband in progress": experiment(
        "hyperband",
        INT,
        settings=HYPERBAND | {"eta": "3.0", "current_s": -1, "evaluating_trials": 0},
        parallel_trial_count=9,
    ),
    "darts": darts(
        operation("separable_convolution", parameter("filter_size", "categorical", 3, 5)),
        num_epochs=1,
        batch_size="None",
        unknown="allowed",
    ),
}

SETTINGS = [
    ("random", "unknown_conf", 1111, "unknown setting unknown_conf for algorithm random"),
    (
        "bayesianoptimization",
        "unknown_conf",
        1111,
        "unknown setting unknown_conf for algorithm bayesianoptimization",
    ),
    ("multivariate-tpe", "gamma", 0.5, "unknown setting gamma for algorithm multivariate-tpe"),
    ("tpe", "gamma", 1.5, "gamma should be in the range of (0, 1)"),
    ("tpe", "gamma", "nan", "gamma should be in the range of (0, 1)"),
    ("tpe", "n_EI_candidates", 0, "n_EI_candidates should be great than zero"),
    ("tpe", "prior_weight", 0, "prior_weight should be great than zero"),
    ("tpe", "prior_weight", "1e999", "prior_weight should be at most 1e+300"),
    (
        "tpe",
        "prior_weight",
        "aaa",
        "failed to validate prior_weight(aaa): could not convert string to float: 'aaa'",
    ),
    (
        "tpe",
        "random_state",
        "1e999",
        "failed to validate random_state(1e999): invalid literal for int() with base 10: '1e999'",
    ),
    ("tpe", "n_startup_trials", -1, "n_startup_trials should be great or equal than zero"),
    ("tpe", "n_ei_candidates", 10**12, "n_ei_candidates should be at most 10000"),
    ("tpe", "n_ei_candidates", -1, "n_ei_candidates should be great or equal than zero"),
    ("tpe", "n_EI_candidates", 10**12, "n_EI_candidates should be at most 10000"),
    (
        "bayesianoptimization",
        "n_initial_points",
        -1,
        "n_initial_points should be great or equal than zero",
    ),
    (
        "cmaes",
        "restart_strategy",
        "invalid",
        "restart_strategy invalid is not supported in CMAES optimization",
    ),
    ("cmaes", "sigma", -10, "sigma should be great or equal than zero"),
    ("cmaes", "sigma", "inf", "sigma should be at most 1e+300"),
    ("hyperband", "r_l", "nine", "r_l must be a positive float number."),
    ("hyperband", "r_l", "1e999", "r_l must be a positive float number."),
    ("hyperband", "r_l", 0, "r_l must be a positive float number."),
    ("hyperband", "r_l", 1e300, "r_l must be at most 1e+09, and eta^50 at least r_l."),
    ("hyperband", "eta", "1.0000001", "r_l must be at most 1e+09, and eta^50 at least r_l."),
    ("hyperband", "eta", 1, "eta must be greater than one."),
    ("hyperband", "eta", "nan", "eta must be a number."),
]
"""Algorithm, a setting that is wrong, its value, and the text."""

SPACES = {"cmaes": PAIR, "hyperband": (INT,)}
DEFAULTS = {"hyperband": HYPERBAND}

REFUSED = [
    *[
        (
            experiment(
                algorithm,
                *SPACES.get(algorithm, ()),
                settings={**DEFAULTS.get(algorithm, {}), name: value},
            ),
            text,
        )
        for algorithm, name, value, text in SETTINGS
    ],
    (pb.Experiment(), "unknown algorithm name "),
    (experiment("unknown"), "unknown algorithm name unknown"),
    (experiment("enas"), "unknown algorithm name enas"),
    (experiment("pbt"), "unknown algorithm name pbt"),
    (experiment("x" * 10_000), f"unknown algorithm name {'x' * 100}…"),
    *[
        (
            experiment(algorithm, *PAIR, settings={"random_state": -1}),
            "random_state should be great or equal than zero",
        )
        for algorithm in ALGORITHMS
        if algorithm != "hyperband"
    ],
    *[
        (
            experiment("bayesianoptimization", settings={name: "unknown value"}),
            f"{name} unknown value is not supported in Bayesian optimization",
        )
        for name in ("base_estimator", "acq_func", "acq_optimizer")
    ],
    (
        experiment("cmaes", INT, parameter("b", "discrete", 1, 2)),
        "cmaes only supports two or more dimensional continuous search space.",
    ),
    (
        experiment("grid", parameter("param-1", "double", 1, 5)),
        "Param param-1 step is nil; For discrete search space, all parameters must include step",
    ),
    (
        experiment("grid", INT, parameter("b", "double", 1, 5, step=1), max_trial_count=26),
        "Max Trial Count: 26 > all possible search combinations: 25",
    ),
    (experiment("hyperband", INT), "r_l and resource_name must be set."),
    (
        experiment("hyperband", INT, settings=HYPERBAND, parallel_trial_count=8),
        "parallelTrialCount must be not less than 9.",
    ),
    (
        experiment(
            "hyperband",
            INT,
            settings=HYPERBAND | {"resource_name": "epochs"},
            parallel_trial_count=9,
        ),
        "value of resource_name setting must be in parameters.",
    ),
    (
        experiment(
            "hyperband",
            parameter("param-1", "categorical", "few", "many"),
            settings=HYPERBAND,
            parallel_trial_count=9,
        ),
        "the parameter that resource_name names must have numbers as values.",
    ),
    (experiment("random", INT, INT), "parameter param-1 is defined twice"),
    (
        experiment("random", settings={f"s{i}": 1 for i in range(101)}),
        "more than 100 algorithm settings",
    ),
    (darts(operation("")), "Missing operationType in Operation:\n"),
    (darts(operation()), "Missing ParameterConfigs in Operation:\n"),
    (
        darts(operation("conv", parameter("", "int", 1, 2))),
        "Missing Name in ParameterConfig:\n",
    ),
    (
        darts(operation("conv", pb.ParameterSpec(name="a"))),
        "Missing ParameterType in ParameterConfig:\n",
    ),
    (
        darts(operation("conv", parameter("a", "categorical"))),
        "Missing List in ParameterConfig.feasibleSpace:\n",
    ),
    (
        darts(operation("conv", parameter("a", "int", "", ""))),
        "Missing Max and Min in ParameterConfig.feasibleSpace:\n",
    ),
    (
        darts(operation("conv", parameter("a", "double", 1, 2))),
        "Step parameter should be > 0 in ParameterConfig.feasibleSpace:\n",
    ),
    (darts(num_epochs=0), "num_epochs should be greater than zero"),
    (darts(w_lr=-1), "w_lr should be greater than or equal to zero"),
    (darts(batch_size=0), "batch_size should be greater than or equal to one"),
    (darts(num_workers=-1), "num_workers should be greater than or equal to zero"),
    (darts(num_nodes="x"), "failed to validate num_nodes(x): invalid literal for int()"),
]


@pytest.mark.parametrize("name", VALID)
def test_validate_accepts_what_katib_accepts(name):
    validate(VALID[name])


@pytest.mark.parametrize(("message", "text"), REFUSED, ids=[text[:50] for _, text in REFUSED])
def test_validate_refuses_with_text_of_katib(message, text):
    is_prefix = text.endswith(("\n", "int()"))
    with pytest.raises(Invalid, match="^" + re.escape(text) + ("" if is_prefix else "$")):
        validate(message)


def test_validate_loads_no_library_of_algorithms():
    code = (
        "import sys; from tbservice.katib import suggestions; "
        "print({'optuna', 'cmaes', 'scipy', 'sklearn'} & set(sys.modules))"
    )
    run = run_to_end([sys.executable, "-c", code], check=True)
    assert run.stdout.strip() == "set()"
