"""Counts of superseded points: those at a step that their series already has in the same file.

The server stores one point of a step. A job that logs without a step writes all points at step 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from tbwire.points import Steps

SUPERSEDED: Final = "superseded"
"""Points at a step that an earlier point of their series and file has."""

INEXACT: Final = "superseded_inexact"
"""Segments in which there may be more of them.

Their steps are below those of an earlier segment, of which only the lowest and highest are known.
"""

ONE_STEP_SERIES: Final = "one_step_series"
"""Series of a file that have several points, all at one step."""


class StepSpan(NamedTuple):
    """The steps of a series in one segment; `repeated` points have the step of an earlier one."""

    repeated: int
    lowest: int
    highest: int
    is_increasing: bool  # each step is above the one before


_SeenSteps = tuple[int, int, bool]
"""Steps of a series in a file: lowest, highest, and whether all of several points share one."""


def step_span(steps: Steps) -> StepSpan:
    """Return the span of these steps, which are at least one."""
    first, last = int(steps[0]), int(steps[-1])
    if len(steps) == 1 or bool((steps[1:] > steps[:-1]).all()):
        return StepSpan(0, first, last, True)
    different = np.unique(steps)
    return StepSpan(
        len(steps) - len(different), int(different[0]), int(different[-1]), is_increasing=False
    )


class RepeatedSteps:
    """Counts the superseded points of one event file, segment by segment.

    With `is_partial` the file's first points were sent in an earlier upload: they are not known,
    and series at one step are not counted.
    """

    __slots__ = ("_is_partial", "_seen")

    def __init__(self, *, is_partial: bool) -> None:
        self._seen: dict[str, _SeenSteps] = {}
        self._is_partial = is_partial

    def count(self, spans: Mapping[str, StepSpan]) -> Counter[str]:
        """Count the next segment, by its spans by tag; return the change of the three counts.

        These are SUPERSEDED, INEXACT and ONE_STEP_SERIES.
        """
        counts: Counter[str] = Counter()
        seen = self._seen
        for tag, span in spans.items():
            before = seen.get(tag)
            repeated, lowest, highest, _ = span
            if before is None and not repeated:  # the fast path: nearly all series of small files
                seen[tag] = (lowest, highest, False)
            else:
                seen[tag] = self._join(before, span, counts)

        if counts and self._is_partial and counts[SUPERSEDED]:
            counts[INEXACT] += 1
        return counts

    def _join(self, before: _SeenSteps | None, span: StepSpan, counts: Counter[str]) -> _SeenSteps:
        """Return a series' steps including another span, and add to the counts."""
        counts[SUPERSEDED] += span.repeated
        lowest, highest, is_repeated, was_one_step = (
            span.lowest,
            span.highest,
            span.repeated > 0,
            False,
        )
        if before is not None:
            counts[SUPERSEDED] += span.lowest == before[1]
            counts[INEXACT] += span.lowest < before[1]
            lowest, highest, is_repeated = min(lowest, before[0]), max(highest, before[1]), True
            was_one_step = before[2]

        is_one_step = is_repeated and lowest == highest
        if not self._is_partial:
            counts[ONE_STEP_SERIES] += is_one_step - was_one_step
        return lowest, highest, is_one_step
