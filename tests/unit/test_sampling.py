"""Uniform samples: exactly k points, including the last, nested, determined by the steps alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.sample_order import (
    RANK_MAX,
    choose_uniform_sample,
    compute_rank_and_key,
    find_coarsest_level,
    get_level_rank_max,
    splitmix64,
)

# As the migration draws it: each rank holds about half of the slots of the rank above.
DRAW = np.random.default_rng(1).random(65536)
RANKS = np.sum([0.5 ** (RANK_MAX - rank) <= DRAW for rank in range(RANK_MAX)], axis=0).astype(
    np.uint8
)

INT64S = st.integers(-(2**63), 2**63 - 1)
STEPS = st.lists(INT64S, unique=True, max_size=300).map(
    lambda steps: np.array(sorted(steps), np.int64)
)


def test_splitmix64_is_published_one():
    # The first outputs of the reference implementation with seed 0, which adds the constant before
    # each.
    golden = 0x9E3779B97F4A7C15
    seeds = np.array([0, golden, 2 * golden % 2**64], np.uint64).view(np.int64)
    assert [hex(int(hash_)) for hash_ in splitmix64(seeds)] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


@given(STEPS, st.integers(0, 400))
def test_sample_is_exactly_min_n_k_and_keeps_ends(steps, k):
    sample = choose_uniform_sample(steps, k, RANKS)
    assert len(sample) == min(len(steps), k)
    assert np.all(np.diff(sample) > 0)
    if len(steps) and k >= 1:
        assert sample[-1] == len(steps) - 1
    if len(steps) and k >= 2:
        assert sample[0] == 0


@given(STEPS, st.integers(2, 8) | st.integers(2, 300))
def test_sample_is_ends_and_then_first_of_order(steps, k):
    rank, key = compute_rank_and_key(steps, RANKS)
    inner = sorted(range(1, len(steps) - 1), key=lambda i: (rank[i], key[i]))[: k - 2]
    ends = {0, len(steps) - 1} if len(steps) else set()
    assert set(choose_uniform_sample(steps, k, RANKS).tolist()) == ends | set(inner)


@pytest.mark.parametrize("n", [10_000, 1_000_000])
@pytest.mark.parametrize("k", [10, 1000])
def test_level_gives_same_sample_as_all_points(n, k):
    steps = np.arange(n) * 7
    rank, _ = compute_rank_and_key(steps, RANKS)
    whole = steps[choose_uniform_sample(steps, k, RANKS)]
    level = find_coarsest_level(
        n, k, [float(np.mean(get_level_rank_max(level) >= RANKS)) for level in range(6)]
    )
    assert level > 0 or k * 8 > n / 2
    held = (rank <= get_level_rank_max(level)) | (steps == steps[0]) | (steps == steps[-1])
    assert np.array_equal(
        steps[held][choose_uniform_sample(steps[held], k, RANKS, get_level_rank_max(level))], whole
    )


def test_level_with_too_few_points_says_so():
    assert choose_uniform_sample(np.arange(10), 8, RANKS, get_level_rank_max(5)) is None


@pytest.mark.parametrize("stride", [1, 7, 10, 1_000, 65_536, 2**40 + 1])
def test_sample_is_unbiased_over_many_offsets(stride):
    """The mean of a sample of any strided steps is on average that of all: no period in the steps
    shows.

    Of a uniform draw of j of n positions the mean has the standard deviation sqrt((n + 1) (n - j) /
    12 j).
    """
    n, k, offsets = 1_000, 52, 400
    means = [
        choose_uniform_sample(np.arange(n) * stride + offset * 12_345_678_901, k, RANKS)[
            1:-1
        ].mean()
        for offset in range(offsets)
    ]
    deviation = ((n + 1) * (n - k + 2) / 12 / (k - 2)) ** 0.5
    assert abs(np.mean(means) - (n - 1) / 2) < 4 * deviation / offsets**0.5
    assert 0.85 < np.std(means) / deviation < 1.15


def test_every_position_is_as_likely_as_any_other():
    """A chi-squared test, of 9 degrees of freedom: how often each tenth of a series is in a sample,
    over offsets.
    """
    n, k, offsets = 1_000, 52, 400
    sample = [
        choose_uniform_sample(np.arange(n) * 3 + offset * 987_654_321, k, RANKS)[1:-1]
        for offset in range(offsets)
    ]
    counts = np.bincount(np.concatenate(sample) * 10 // n, minlength=10)
    expected = (k - 2) * offsets / 10
    assert (
        (counts - expected) ** 2 / expected
    ).sum() < 33.7  # one in ten thousand uniform draws is over it
