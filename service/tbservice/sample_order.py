"""The sampling order: which points a uniform sample of k contains.

Every step is hashed to one of 65,536 slots, the top 16 bits of splitmix64(step). A migration drew
the rank of each slot with TABLESAMPLE. Steps are ordered by (rank, splitmix64(step)): a total
order, as splitmix64 is a bijection. A uniform sample of k consists of the last point, the first
point, and the first k - 2 others in this order. It depends only on the set of steps, a larger
sample contains every smaller one, and parallel series keep the same steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tbservice.types.identifiers import Int64s, Ranks, UInt64s

RANK_MAX: Final = 15
"""The highest rank, which half of the points have."""

LEVEL_MAX: Final = 5
"""The highest level; it contains one of 2 ** 15 points."""

RANKS_PER_LEVEL: Final = 3
"""A level contains 2 ** -3 = 1/8 of the points of the level below."""

_SIGN_BIT: Final = np.uint64(1 << 63)


def splitmix64(steps: Int64s) -> UInt64s:
    """Return a pseudo-random bijection of 64-bit integers (Steele, Lea and Flood 2014, OOPSLA)."""
    z = steps.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def compute_slots(steps: Int64s) -> npt.NDArray[np.intp]:
    """Return the slot of each step, 0 to 65,535."""
    return (splitmix64(steps) >> np.uint64(48)).astype(np.intp)


def compute_rank_and_key(steps: Int64s, ranks: Ranks) -> tuple[Ranks, Int64s]:
    """Return the sampling order as two columns that PostgreSQL sorts alike: rank and signed key."""
    hashes = splitmix64(steps)
    # PostgreSQL has no unsigned integers: with the sign bit inverted, the order is the same.
    return ranks[hashes >> np.uint64(48)], (hashes ^ _SIGN_BIT).view(np.int64)


def get_level_rank_max(level: int) -> int:
    """Return the greatest rank in a level: level 0 contains every step, each next one an eighth."""
    return RANK_MAX - RANKS_PER_LEVEL * level


def compute_level_fractions(ranks: Ranks) -> list[float]:
    """Return the fraction of slots, and so about of steps, in each level 0…LEVEL_MAX."""
    shares = np.cumsum(np.bincount(ranks, minlength=RANK_MAX + 1)) / len(ranks)
    return [float(shares[get_level_rank_max(level)]) for level in range(LEVEL_MAX + 1)]


def find_coarsest_level(count: int, k: int, fractions: list[float]) -> int:
    """Return the highest level that very likely contains k of `count` points, else 0.

    Likely: the expected number less four standard deviations is greater than k.
    """
    for level in range(LEVEL_MAX, 0, -1):
        expected = count * fractions[level]
        if expected - 4 * expected**0.5 > k:
            return level
    return 0


def choose_uniform_sample(
    steps: Int64s, k: int, ranks: Ranks, rank_max: int = RANK_MAX
) -> npt.NDArray[np.int64] | None:
    """Return the ascending indices of a uniform sample of `k` steps of a series.

    Args:
        steps: Distinct ascending steps: all of rank at most `rank_max`, perhaps others, and the
            first and the last step of the series.
        k: Size of the sample; fewer if the series has fewer.
        ranks: The rank of each slot.
        rank_max: The greatest rank of the level that `steps` was read from.

    Returns:
        None if too few steps have a rank of at most `rank_max` to decide: read a lower level.
    """
    n = len(steps)
    if rank_max == RANK_MAX and n <= k:
        return np.arange(n)
    if k <= 1 or n <= 1:
        return np.arange(n)[n - k :] if k else np.empty(0, np.int64)

    hashes = splitmix64(steps[1:-1])
    inner_ranks = ranks[hashes >> np.uint64(48)]
    counts_up_to_rank = np.cumsum(np.bincount(inner_ranks, minlength=RANK_MAX + 1))
    # The level that was read may lack points of the sample: a lower one has more.
    if counts_up_to_rank[rank_max] < k - 2:
        return None

    last_rank = int(np.searchsorted(counts_up_to_rank, k - 2))
    below = np.flatnonzero(inner_ranks < last_rank)
    at_last_rank = np.flatnonzero(inner_ranks == last_rank)
    remaining = k - 2 - len(below)
    at_last_rank = at_last_rank[np.argsort(hashes[at_last_rank])[:remaining]]
    return np.concatenate([[0], np.sort(np.concatenate([below, at_last_rank])) + 1, [n - 1]])
