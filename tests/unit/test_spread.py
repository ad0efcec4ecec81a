"""Statistics over several runs at each step, beside a model in plain Python and numpy."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tbservice.runs.spread import (
    RunCurve,
    compute_means,
    compute_spread,
    thin_steps,
    unite_steps,
)

INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(-1e300, 1e300)
VALUES = FINITE | st.sampled_from([math.nan, math.inf, -math.inf, 0.1])
POINTS = st.dictionaries(st.integers(-9, 9) | INT64, VALUES, max_size=12)
QUANTILES = (0.0, 0.05, 0.25, 0.9, 1.0)


def curve(points):
    steps = np.array(sorted(points), np.int64)
    return RunCurve(steps, np.array([points[step] for step in steps.tolist()], np.float64))


def model_value(points, step):
    """Value of a run at a step: None outside of its steps, NaN where it is not finite."""
    before = [each for each in points if each <= step]
    after = [each for each in points if each >= step]
    if not before or not after:
        return None
    low, high = max(before), min(after)
    if not math.isfinite(points[low]) or not math.isfinite(points[high]):
        return math.nan
    weight = Fraction(step - low, high - low) if high > low else Fraction(0)
    return float(Fraction(points[low]) * (1 - weight) + Fraction(points[high]) * weight)


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


@given(runs=st.lists(POINTS, min_size=1, max_size=6))
@example(runs=[{1: 0.1}, {1: 0.1}, {1: 0.1}])
@example(runs=[{-(2**63): 1.0, 2**63 - 1: 2.0}, {0: 3.0}])
@example(runs=[{1: 1.0, 3: math.nan, 5: 3.0}, {2: 1.0, 4: 4.0}])
def test_spread_is_that_of_model(runs):
    curves = [curve(points) for points in runs]
    steps = unite_steps(curves)
    assert steps.tolist() == sorted(set().union(*runs))
    spread = compute_spread(curves, steps, QUANTILES)
    numbers = [abs(value) for points in runs for value in points.values() if math.isfinite(value)]
    scale = max([1.0, *numbers])
    for index, step in enumerate(steps.tolist()):
        at_step = [value for points in runs if (value := model_value(points, step)) is not None]
        finite = np.array([value for value in at_step if math.isfinite(value)])
        assert spread.counts[index] == len(finite)
        assert spread.not_finite[index] == len(at_step) - len(finite)
        if not len(finite):
            assert math.isnan(spread.mean[index])
            assert math.isnan(spread.max[index])
            continue
        scaled = finite / scale
        assert_close(spread.min[index] / scale, scaled.min())
        assert_close(spread.max[index] / scale, scaled.max())
        pairs = zip((0.5, *QUANTILES), (spread.median, *spread.quantiles), strict=True)
        for quantile, values in pairs:
            assert_close(values[index] / scale, np.quantile(scaled, quantile))
        if scale < 1e150:  # the squares of others are not finite
            assert_close(spread.mean[index] / scale, scaled.mean())
            expected = scaled.std(ddof=1) if len(finite) > 1 else math.nan
            assert_close(spread.std[index] / scale, expected)
            assert_close(spread.stderr[index] / scale, expected / math.sqrt(len(finite)))


@given(runs=st.lists(POINTS, min_size=1, max_size=6), order=st.randoms(use_true_random=False))
def test_spread_is_same_in_any_order_and_at_fewer_steps(runs, order):
    steps = unite_steps([curve(points) for points in runs])
    whole = compute_spread([curve(points) for points in runs], steps)
    order.shuffle(runs)
    kept = thin_steps(steps, 3)
    places = np.searchsorted(steps, kept)
    thinned = compute_spread([curve(points) for points in runs], kept)
    for name in ("counts", "not_finite", "mean", "std", "stderr", "median", "min", "max"):
        np.testing.assert_array_equal(getattr(thinned, name), getattr(whole, name)[places], name)


@given(values=st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=20))
def test_means_of_groups_are_those_of_numpy(values):
    numbers = np.array([value for _, value in values], np.float64)
    groups = np.array([group for group, _ in values], np.int64)
    means = compute_means(numbers, groups, 4)
    for group in range(4):
        finite = numbers[(groups == group) & np.isfinite(numbers)]
        assert means.counts[group] == len(finite)
        scale = max([1.0, *np.abs(finite)])
        if scale < 1e150:  # the squares of others are not finite
            mean = (finite / scale).mean() if len(finite) else math.nan
            std = (finite / scale).std(ddof=1) if len(finite) > 1 else math.nan
            assert_close([means.mean[group] / scale, means.std[group] / scale], [mean, std])


def test_spread_of_equal_values_is_zero():
    curves = [RunCurve(np.arange(3), np.full(3, 0.1)) for _ in range(3)]
    spread = compute_spread(curves, np.arange(3))
    assert spread.mean.tolist() == [0.1] * 3
    assert spread.std.tolist() == [0.0] * 3


def test_spread_of_many_runs_is_that_of_blocks(monkeypatch):
    generator = np.random.default_rng(5)
    steps = np.arange(500)
    curves = [RunCurve(steps[:length], generator.normal(size=length)) for length in (500, 3, 400)]
    whole = compute_spread(curves, steps)
    monkeypatch.setattr("tbservice.runs.spread._MATRIX_VALUES_MAX", 7)
    np.testing.assert_array_equal(compute_spread(curves, steps).std, whole.std)


@pytest.mark.parametrize(("count", "kept"), [(0, 5), (4, 5), (5, 5), (6, 5), (1000, 7)])
def test_thinned_steps_keep_first_and_last(count, kept):
    steps = np.arange(count) * 3
    thinned = thin_steps(steps, kept)
    assert len(thinned) == min(count, kept)
    assert len(np.unique(thinned)) == len(thinned)
    assert thinned[[0, -1]].tolist() == steps[[0, -1]].tolist() if count else not len(thinned)
