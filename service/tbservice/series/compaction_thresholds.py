"""Thresholds of compaction: when series are due, and how much one transaction compacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from tbservice import limits
from tbservice.series.tables.series_rows import SeriesRow

IDLE_THRESHOLD: Final = (4, 32)
"""Buffered rows and points below which a series of an idle run is not compacted.

As points, they take 24 bytes each; from here on, a block and its row take less than half of that.
"""

_URGENT_FACTOR: Final = 4
"""Multiple of WRITE_BUFFER_POINTS_MAX from which a series is compacted without waiting for a pause.

It bounds the points that one compaction reads.
"""

_POINTS_PER_COMPACTION: Final = 200_000
"""Buffered points from which a transaction includes no further series: bounds its memory."""


def is_above_threshold(row: SeriesRow) -> bool:
    """Return whether a series is to be compacted at the next pause between batches."""
    return (
        row.tail_rows >= limits.WRITE_BUFFER_ROWS_MAX
        or row.tail_points >= limits.WRITE_BUFFER_POINTS_MAX
    )


def is_urgent(row: SeriesRow) -> bool:
    """Return whether a series is to be compacted at once, even while batches arrive."""
    return (
        row.tail_rows >= limits.WRITE_BUFFER_ROWS_MAX
        or row.tail_points >= _URGENT_FACTOR * limits.WRITE_BUFFER_POINTS_MAX
    )


def is_worth_compacting(row: SeriesRow) -> bool:
    """Return whether a series is to be compacted when its run is idle."""
    rows_min, points_min = IDLE_THRESHOLD
    return row.tail_rows >= rows_min or row.tail_points >= points_min


@dataclass(frozen=True, slots=True)
class PendingRuns:
    """Ids of the runs in which a batch has left series to compact, by when that is due.

    `urgent`: at once. `above_threshold`: at the next pause between batches. `pending`: when the
    run is idle.
    """

    urgent: frozenset[int] = frozenset()
    above_threshold: frozenset[int] = frozenset()
    pending: frozenset[int] = frozenset()


def group_pending_runs(rows: Sequence[SeriesRow]) -> PendingRuns:
    """Return the runs of series that a batch has written to, by when they are to be compacted."""
    return PendingRuns(
        frozenset(row.run_id for row in rows if is_urgent(row)),
        frozenset(row.run_id for row in rows if is_above_threshold(row)),
        frozenset(row.run_id for row in rows if is_worth_compacting(row)),
    )


def limit_points(rows: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Return the first of the locked series, as many as one transaction compacts; at least one."""
    points_before = accumulate((row.tail_points for row in rows), initial=0)
    return [
        row
        for row, before in zip(rows, points_before, strict=False)
        if before < _POINTS_PER_COMPACTION
    ]
