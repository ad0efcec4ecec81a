"""Thin newly sealed points of scalar series into levels, without I/O.

Level n contains about one of 8^n steps (`sample_order`), in separate blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from tbservice import limits
from tbservice.sample_order import LEVEL_MAX, get_level_rank_max, splitmix64
from tbservice.series.compaction_plan import PackedSeries, split_into_blocks
from tbservice.series.dedup import deduplicate_steps
from tbservice.series.tables.scalar_blocks import NewBlock
from tbservice.series.tables.scalar_format import concatenate
from tbservice.types.identifiers import Ranks
from tbwire.points import ScalarPoints

SeriesLevel = tuple[int, int]
"""Series id and level."""

SMALL_BLOCK_POINTS_MAX: Final = limits.BLOCK_POINTS_MAX // 2
"""Points up to which a block of a level is merged with new points; larger ones stay as they are."""


def select_levels(packed: Iterable[PackedSeries], ranks: Ranks) -> dict[SeriesLevel, ScalarPoints]:
    """Return the points that each level copies of the newly sealed ones, in order of arrival.

    A level includes the steps of up to its greatest rank; those that would be empty are left out.
    """
    copies: dict[SeriesLevel, ScalarPoints] = {}
    for series in packed:
        if series.to_thin is None:
            continue
        # The upper 16 bits are the slot (`sample_order`).
        step_ranks = ranks[splitmix64(series.to_thin.steps) >> np.uint64(48)]
        for level in range(1, LEVEL_MAX + 1):
            is_included = step_ranks <= get_level_rank_max(level)
            if is_included.any():  # else no higher level has any: each is a subset of the one below
                copies[series.series_id, level] = series.to_thin.select(is_included)
    return copies


def merge_levels(
    copies: Mapping[SeriesLevel, ScalarPoints], small: Mapping[SeriesLevel, list[ScalarPoints]]
) -> Iterator[NewBlock]:
    """Yield the blocks of copied points, merged with those of the small blocks of their level.

    A step may have several copies in a level, in different blocks: a read deduplicates them.
    """
    for (series_id, level), points in copies.items():
        # Stored ones first: on equal wall times the later arrival wins.
        merged = deduplicate_steps(concatenate([*small.get((series_id, level), []), points]))
        yield from split_into_blocks(series_id, level, merged)
