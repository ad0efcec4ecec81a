"""Hyperband's rounds, read off the trials of a request."""

from __future__ import annotations

import itertools

import pytest

from support.sweeps import experiment, parameter, rows_of, trial
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions import suggest
from tbservice.katib.suggestions.hyperband import read_plan

SETTINGS = {"r_l": 9, "resource_name": "epochs"}
SPEC = experiment(
    "hyperband",
    parameter("x", "double", 0, 1),
    parameter("epochs", "int", 1, 9),
    parameter("kind", "categorical", "u", "v"),
    settings=SETTINGS,
)


class Controller:
    """Trials of one experiment: asks for some, ends some."""

    def __init__(self, spec=SPEC):
        self.spec, self.trials, self.clock = spec, [], itertools.count(1)

    def ask(self, count):
        reply = suggest(
            pb.GetSuggestionsRequest(
                experiment=self.spec,
                trials=sorted(self.trials, key=lambda t: t.status.completion_time),
                current_request_number=count,
                total_request_number=len(self.trials) + count,
            )
        )
        rows = rows_of(reply)
        assert len(rows) == count
        start = self.time()
        asked = [trial(f"t{len(self.trials) + i}", row, start=start) for i, row in enumerate(rows)]
        self.trials += asked
        return asked

    def end(self, trials, condition=pb.TrialStatus.SUCCEEDED):
        for item in trials:
            item.status.condition = condition
            item.status.completion_time = self.time()
            if condition == pb.TrialStatus.SUCCEEDED:
                value = next(
                    a.value for a in item.spec.parameter_assignments.assignments if a.name == "x"
                )
                item.status.observation.metrics.add(name="loss", value=value)

    def time(self):
        return f"2026-01-01T00:{next(self.clock):02}:00Z"


def amounts(trials):
    return [assignments(item)["epochs"] for item in trials]


def assignments(item):
    return {a.name: a.value for a in item.spec.parameter_assignments.assignments}


def test_rounds_are_those_of_katib():
    """Its trace for r_l = 9 and eta = 3, without replies that are shorter than the request."""
    controller = Controller()
    for count, amount in ((9, "1"), (3, "3"), (1, "9"), (5, "3"), (2, "9"), (3, "9"), (9, "1")):
        trials = controller.ask(count)
        assert amounts(trials) == [amount] * count
        controller.end(trials)


def test_better_configurations_get_more_with_same_parameters():
    controller = Controller()
    first = controller.ask(9)
    controller.end(first)
    best = sorted(first, key=lambda item: float(assignments(item)["x"]))[:3]
    promoted = controller.ask(3)
    assert [assignments(item) for item in promoted] == [
        assignments(item) | {"epochs": "3"} for item in best
    ]
    assert [*assignments(promoted[0])] == ["x", "epochs", "kind"]


def test_objective_to_maximize_promotes_greatest():
    spec = pb.Experiment.FromString(SPEC.SerializeToString())
    spec.spec.objective.type = pb.MAXIMIZE
    controller = Controller(spec)
    first = controller.ask(9)
    controller.end(first)
    best = sorted((float(assignments(item)["x"]) for item in first), reverse=True)[:3]
    assert [float(assignments(item)["x"]) for item in controller.ask(3)] == best


def test_round_with_straggler_is_filled_from_next_bracket():
    controller = Controller()
    first = controller.ask(9)
    controller.end(first[:8])
    assert amounts(controller.ask(2)) == ["3", "3"]  # the first two of the bracket with five
    controller.end(first[8:])
    assert amounts(controller.ask(7)) == ["3"] * 6 + ["9"]
    promoted = {assignments(item)["x"] for item in controller.trials[11:14]}
    assert promoted < {assignments(item)["x"] for item in first}


def test_requests_larger_than_round_reach_into_next_brackets():
    controller = Controller()
    assert amounts(controller.ask(20)) == ["1"] * 9 + ["3"] * 5 + ["9"] * 3 + ["1"] * 3


def test_failed_trials_are_not_promoted():
    controller = Controller()
    first = controller.ask(9)
    controller.end(first[:2])
    controller.end(first[2:], pb.TrialStatus.FAILED)
    next_trials = controller.ask(4)
    assert amounts(next_trials) == ["3"] * 4
    assert {assignments(item)["x"] for item in next_trials[:2]} == {
        assignments(item)["x"] for item in first[:2]
    }
    assert not {assignments(item)["x"] for item in next_trials[2:]} & {
        assignments(item)["x"] for item in first
    }


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        ("int", (2, 8), ["2", "3", "8"]),
        ("double", (0, 100), ["1.0", "3.0", "9.0"]),
        ("discrete", ("1", "2.50", "10"), ["1", "2.50", "10"]),
    ],
)
def test_resource_keeps_to_its_parameter(kind, values, texts):
    spec = experiment(
        "hyperband",
        parameter("x", "double", 0, 1),
        parameter("epochs", kind, *values),
        settings=SETTINGS,
    )
    controller = Controller(spec)
    for count, text in zip((9, 3, 1), texts, strict=True):
        trials = controller.ask(count)
        assert amounts(trials) == [text] * count
        controller.end(trials)


def test_request_of_katibs_test_is_answered():
    """Its resource is no parameter, and its trials have no condition and no such metric."""
    spec = experiment(
        "hyperband",
        parameter("param-1", "int", 1, 5),
        parameter("param-4", "double", 1, 5),
        settings={"r_l": 10, "resource_name": "--num-epochs"},
        kind=pb.MAXIMIZE,
    )
    trials = [trial("test-asfjh", {"param-1": "2", "param-4": "3.44"})]
    message = pb.GetSuggestionsRequest(experiment=spec, trials=trials, current_request_number=2)
    assert [set(row) for row in rows_of(suggest(message))] == [{"param-1", "param-4"}] * 2


@pytest.mark.parametrize("settings", [{}, {"r_l": "x"}, {"r_l": "9", "eta": "nan"}])
def test_settings_without_plan_are_refused(settings):
    spec = experiment("hyperband", parameter("x", "double", 0, 1), settings=settings)
    with pytest.raises(Invalid, match=r"r_l|eta"):
        suggest(pb.GetSuggestionsRequest(experiment=spec, current_request_number=1))


def test_eta_below_zero_is_katibs_default():
    spec = pb.Experiment.FromString(SPEC.SerializeToString())
    spec.spec.algorithm.algorithm_settings.add(name="eta", value="-1")
    assert amounts(Controller(spec).ask(10)) == ["1"] * 9 + ["3"]


def test_resource_is_not_cut_by_rounding():
    assert read_plan({"r_l": "729", "eta": "1.5"}).amount(6, 0) == 64  # 63.99999999999999
