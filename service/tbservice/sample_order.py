"""The order to sample by: which points a uniform sample of k keeps.

Every step falls into one of 65,536 slots, the top 16 bits of splitmix64(step). A migration drew each slot's rank with
TABLESAMPLE. Steps are ordered by (rank, splitmix64(step)), which is a total order, as splitmix64 is a bijection. A
uniform sample of k is the last point, the first point, and the k - 2 others that come first in that order: it depends
on the set of steps alone, asking for more moves no point, and parallel series keep the same steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tbservice.types import Int64s, Ranks, UInt64s

RANK_MAX: Final = 15
LEVEL_MAX: Final = 5
RANKS_PER_LEVEL: Final = 3
"""A level is thinner than the one below by 2 ** 3 = 8."""

_SIGN_BIT: Final = np.uint64(1 << 63)


def splitmix64(steps: Int64s) -> UInt64s:
    """A bijection of 64-bit integers that scatters neighbours (Steele, Lea and Flood 2014, OOPSLA)."""
    z = steps.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def compute_slots(steps: Int64s) -> npt.NDArray[np.intp]:
    """The slot of each step, 0 to 65,535."""
    return (splitmix64(steps) >> np.uint64(48)).astype(np.intp)


def compute_rank_and_key(steps: Int64s, ranks: Ranks) -> tuple[Ranks, Int64s]:
    """The order to sample by, as two columns that PostgreSQL sorts the same way: rank, and a signed key."""
    hashes = splitmix64(steps)
    return ranks[hashes >> np.uint64(48)], (hashes ^ _SIGN_BIT).view(np.int64)


def get_level_rank_max(level: int) -> int:
    """The greatest rank that a thinned level holds: level 0 holds all, level 1 an eighth, and so on."""
    return RANK_MAX - RANKS_PER_LEVEL * level


def compute_level_fractions(ranks: Ranks) -> list[float]:
    """The share of all slots, and so about of all steps, that each level 0…LEVEL_MAX holds."""
    return [float(np.mean(ranks <= get_level_rank_max(level))) for level in range(LEVEL_MAX + 1)]


def find_coarsest_level(count: int, k: int, fractions: list[float]) -> int:
    """The thinnest level likely to hold k of `count` points: expected number less four standard deviations over k."""
    for level in range(LEVEL_MAX, 0, -1):
        expected = count * fractions[level]
        if expected - 4 * expected**0.5 > k:
            return level
    return 0


def choose_uniform_sample(
    steps: Int64s, k: int, ranks: Ranks, rank_max: int = RANK_MAX
) -> npt.NDArray[np.int64] | None:
    """Indices, ascending, of a uniform sample of `k` of these distinct, ascending steps, from a level's candidates.

    `steps` holds every step of rank at most `rank_max`, and may hold more; the first and the last are always the
    series' own. None when too few of them have such a rank to be sure of the answer: ask again with a lower level.
    """
    n = len(steps)
    if rank_max == RANK_MAX and n <= k:
        return np.arange(n)
    if k <= 1 or n <= 1:
        return np.arange(n)[n - k :] if k else np.empty(0, np.int64)
    hashes = splitmix64(steps[1:-1])
    inner_ranks = ranks[hashes >> np.uint64(48)]
    within = np.cumsum(np.bincount(inner_ranks, minlength=RANK_MAX + 1))
    if within[rank_max] < k - 2:
        return None
    last_rank = int(np.searchsorted(within, k - 2))
    surely = np.flatnonzero(inner_ranks < last_rank)
    perhaps = np.flatnonzero(inner_ranks == last_rank)
    wanted = k - 2 - len(surely)
    perhaps = perhaps[np.argsort(hashes[perhaps])[:wanted]]
    return np.concatenate([[0], np.sort(np.concatenate([surely, perhaps])) + 1, [n - 1]])
