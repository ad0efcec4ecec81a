"""Median stopping: settings with Katib's texts, and the rule for trials to come."""

from __future__ import annotations

import math

import pytest

from tbservice.errors import Invalid
from tbservice.katib import early_stopping
from tbservice.katib import katib_pb2 as pb

LOSS = pb.ObjectiveSpec(type=pb.MINIMIZE, objective_metric_name="loss")
ACCURACY = pb.ObjectiveSpec(type=pb.MAXIMIZE, objective_metric_name="accuracy")


def spec(name="medianstop", **settings):
    return pb.EarlyStoppingSpec(
        algorithm_name=name,
        algorithm_settings=[
            pb.EarlyStoppingSetting(name=key, value=str(value)) for key, value in settings.items()
        ],
    )


FOUR = [[value] for value in (0.25, 0.35, 0.45, 0.9)]


def values(rules):
    return [rule.value for rule in rules]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (spec("unknown"), "unknown algorithm name unknown"),
        (pb.EarlyStoppingSpec(), "unknown algorithm name "),
        (spec(unknown_conf=100), "unknown setting unknown_conf for algorithm medianstop"),
        (
            spec(min_trials_required=-1),
            r"min_trials_required must be greater than zero \(>0\)",
        ),
        (spec(start_step=0), r"start_step must be greater or equal than one \(>=1\)"),
        (spec(start_step=2**31), r"^start_step should be at most 2147483647$"),
        (
            spec(start_step="x"),
            r"failed to validate start_step\(x\): invalid literal for int\(\) with base 10: 'x'",
        ),
        (spec(statistic="mode"), "statistic must be median or mean"),
    ],
)
def test_validate_refuses_with_text_of_katib(message, text):
    with pytest.raises(Invalid, match=f"^{text}$"):
        early_stopping.validate(message)


def test_validate_accepts_known_settings():
    early_stopping.validate(spec(min_trials_required=2, start_step=5, statistic="mean"))


def test_rule_has_median_of_trials():
    (rule,) = early_stopping.rules(spec(start_step=2), LOSS, FOUR)
    assert rule == pb.EarlyStoppingRule(
        name="loss", value="0.4", comparison=pb.GREATER, start_step=2
    )


def test_rule_has_mean_if_wanted():
    assert values(early_stopping.rules(spec(statistic="mean"), LOSS, FOUR)) == ["0.4875"]


def test_rule_compares_by_type_of_objective():
    unknown = pb.ObjectiveSpec(objective_metric_name="loss")
    comparisons = [
        early_stopping.rules(spec(), objective, FOUR)[0].comparison
        for objective in (LOSS, ACCURACY, unknown)
    ]
    assert comparisons == [pb.GREATER, pb.LESS, pb.GREATER]


def test_rule_counts_first_logs_of_each_trial():
    histories = [[1, 2, 300], [3, 5], [7]]
    assert values(early_stopping.rules(spec(start_step=2), LOSS, histories)) == ["4.0"]
    assert early_stopping.logs_per_trial(spec(start_step=2)) == 2
    assert early_stopping.logs_per_trial(pb.EarlyStoppingSpec()) == 4


def test_rule_waits_for_enough_trials_with_numbers():
    histories = [*FOUR[:2], [], [math.nan], [1, math.nan], [math.inf]]
    assert early_stopping.rules(spec(), LOSS, histories) == []
    assert values(early_stopping.rules(spec(min_trials_required=2), LOSS, histories)) == ["0.3"]


def test_rule_of_huge_values_is_finite():
    huge = [[1.7e308, 1.7e308]] * 4
    assert values(early_stopping.rules(spec(), LOSS, huge)) == ["1.7e+308"]
    mean = spec(statistic="mean")
    assert values(early_stopping.rules(mean, LOSS, huge)) == ["1.7e+308"]


def test_rule_needs_an_objective():
    """The request of Katib's test_medianstop_service.py has an experiment with a name only."""
    empty = pb.EarlyStoppingSpec(), pb.ObjectiveSpec()
    assert early_stopping.rules(*empty, []) == []
    assert early_stopping.rules(*empty, FOUR) == []


def test_trials_that_ran_to_their_end_are_compared():
    trials = [
        pb.Trial(name=str(condition), status=pb.TrialStatus(condition=condition))
        for condition in pb.TrialStatus.TrialConditionType.values()
    ]
    assert early_stopping.trials_to_compare(trials) == ["2"]


def test_trial_that_is_listed_again_is_compared_once():
    trial = pb.Trial(name="a", status=pb.TrialStatus(condition=pb.TrialStatus.SUCCEEDED))
    assert early_stopping.trials_to_compare([trial, trial]) == ["a"]
