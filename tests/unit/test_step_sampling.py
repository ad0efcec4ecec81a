"""Linear samples, at equal distances of steps, and `extremes` samples, which keep minimum and
maximum.
"""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tbservice.reading.sampling.rules import ExtremesSampler, make_sampler
from tbservice.sample_order import choose_uniform_sample
from tbservice.types.sampling import Sampling, SamplingRule

INT64 = st.integers(-(2**63), 2**63 - 1)
STEPS = st.sets(st.one_of(INT64, st.integers(-50, 200)), min_size=0, max_size=120).map(
    lambda sample: np.array(sorted(sample), np.int64)
)


RANKS = np.random.default_rng(3).integers(0, 16, 65536).astype(np.uint8)
DRAWN = np.random.default_rng(4).random(65536) < 0.3


def chooser(rule, k, steps):
    ends = (int(steps[0]), int(steps[-1])) if len(steps) else (0, -1)
    return make_sampler(Sampling(SamplingRule(rule), k), ends, RANKS, DRAWN)


def linear(steps, k):
    return chooser("linear", k, steps)(steps, np.empty(0))


def extremes(steps, values, k):
    return ExtremesSampler(k)(steps, values)


def boundaries(steps, k):
    """Return the least step at or after each end of k - 1 equal intervals, in exact integers."""
    first, last = int(steps[0]), int(steps[-1])
    for index in range(k):
        numerator = (last - first) * index
        yield min(step for step in steps.tolist() if (step - first) * (k - 1) >= numerator)


@given(STEPS, st.integers(0, 40))
@example(np.array([-(2**63), 2**63 - 1]), 3)
@example(np.array([-(2**63), 0, 2**63 - 1]), 40)
def test_linear_takes_lowest_step_at_or_after_each_boundary(steps, k):
    kept = steps[linear(steps, k)].tolist()
    if k == 0 or not len(steps):
        assert kept == []
    elif k == 1:
        assert kept == [steps[-1]]
    else:
        assert kept == sorted(set(boundaries(steps, k)))
        assert (kept[0], kept[-1]) == (steps[0], steps[-1])
        assert len(kept) <= k


def values_of(steps):
    return arrays(np.float64, len(steps))


SERIES = STEPS.flatmap(lambda steps: st.tuples(st.just(steps), values_of(steps)))


@given(SERIES, st.integers(5, 200))
def test_extremes_keep_ends_minimum_maximum_and_nan(series, k):
    steps, values = series
    sample = extremes(steps, values, k)
    assert len(sample) <= k
    assert sample.tolist() == sorted(set(sample.tolist()))
    if len(steps):
        kept = values[sample]
        assert (sample[0], sample[-1]) == (0, len(steps) - 1)
        assert np.isnan(kept).any() == np.isnan(values).any()
        numbers = values[~np.isnan(values)]
        if len(numbers):
            assert np.nanmin(kept) == numbers.min()
            assert np.nanmax(kept) == numbers.max()


@given(st.integers(0, 9_999), st.sampled_from([np.nan, np.inf, -np.inf, 1e-9, -1e-9]))
def test_spike_of_one_point_is_never_lost(at, spike):
    values = np.zeros(10_000)
    values[at] = spike
    assert at in extremes(np.arange(10_000) * 7 - 3_000, values, 50)


@given(st.integers(0, 2_000), st.integers(5, 100))
def test_what_bucket_keeps_depends_on_nothing_outside_it(seed, k):
    """Two series that are equal in one half keep the same points there, because their buckets are
    equal.
    """
    random = np.random.default_rng(seed)
    steps, values = np.arange(4_096), random.random(4_096)
    others = np.where(steps < 2_048, values, random.random(4_096))
    first, second = (set(extremes(steps, column, k)[:].tolist()) for column in (values, others))
    if k >= 10:  # at least two buckets
        assert {at for at in first if at < 2_048} == {at for at in second if at < 2_048}


def test_extremes_of_nothing_are_nothing():
    assert extremes(np.arange(10), np.ones(10), 0).tolist() == []
    assert extremes(np.empty(0, np.int64), np.empty(0), 9).tolist() == []


CUTS = st.lists(st.integers(0, 120), max_size=6)


@given(
    SERIES,
    CUTS,
    st.sampled_from(["uniform", "linear", "extremes", "bernoulli"]),
    st.integers(5, 60),
)
def test_sample_of_pieces_is_that_of_whole(series, cuts, rule, k):
    steps, values = series
    choose_whole, choose_pieces = chooser(rule, k, steps), chooser(rule, k, steps)
    expected = steps[choose_whole(steps, values)].tolist()
    kept_steps, kept_values = steps[:0], values[:0]
    for piece in np.split(np.arange(len(steps)), sorted(min(cut, len(steps)) for cut in cuts)):
        candidates = np.append(kept_steps, steps[piece]), np.append(kept_values, values[piece])
        sample = choose_pieces(*candidates)
        kept_steps, kept_values = (column[sample] for column in candidates)
    assert kept_steps.tolist() == expected


@given(STEPS, st.integers(0, 60))
def test_last_points_can_be_sampled_like_any_others(steps, k):
    assert (
        chooser("uniform", k, steps)(steps, np.empty(0)).tolist()
        == choose_uniform_sample(steps, k, RANKS).tolist()
    )


def test_bernoulli_sample_keeps_share_and_ends():
    steps = np.arange(0, 300_000, 3)
    kept = steps[chooser("bernoulli", 0, steps)(steps, np.empty(0))]
    assert (kept[0], kept[-1]) == (steps[0], steps[-1])
    assert abs(len(kept) / len(steps) - DRAWN.mean()) < 0.01
