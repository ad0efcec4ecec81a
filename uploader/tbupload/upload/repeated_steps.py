"""Counts superseded points: those at a step that their series already has in the same event file.

One step keeps one point, so that all but one of them are replaced. Who logs without a step writes all at step 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from tbupload.events.points import Steps

SUPERSEDED: Final = "superseded"
"""Points whose step was given before in their series and file."""

INEXACT: Final = "superseded_inexact"
"""Times that there may be more of them: steps fell back below those of an earlier segment, whose steps are not kept."""

ONE_STEP_SERIES: Final = "one_step_series"
"""Series of a file with several points, all at one step."""


class StepSpan(NamedTuple):
    """The steps of a series in one segment; `repeated` points are at a step that another one before them has."""

    repeated: int
    lowest: int
    highest: int
    is_increasing: bool  # each step is above the one before


_SeenSteps = tuple[int, int, bool]
"""What a file has given of a series: the lowest and highest step, and whether it is one step of several points."""


def step_span(steps: Steps) -> StepSpan:
    """The span of these steps, at least one."""
    first, last = int(steps[0]), int(steps[-1])
    if len(steps) == 1 or bool((steps[1:] > steps[:-1]).all()):
        return StepSpan(0, first, last, True)
    different = np.unique(steps)
    return StepSpan(
        len(steps) - len(different), int(different[0]), int(different[-1]), is_increasing=False
    )


class RepeatedSteps:
    """Counts the superseded points of one event file, segment by segment.

    `is_partial` when earlier points of the file are not known: what was sent in an earlier upload is not counted.
    """

    __slots__ = ("_is_partial", "_seen")

    def __init__(self, *, is_partial: bool) -> None:
        self._seen: dict[str, _SeenSteps] = {}
        self._is_partial = is_partial

    def count(self, spans: Mapping[str, StepSpan]) -> Counter[str]:
        """Take the next segment's spans by tag; return how much SUPERSEDED, INEXACT and ONE_STEP_SERIES change."""
        found: Counter[str] = Counter()
        given = self._seen
        for tag, span in spans.items():
            before = given.get(tag)
            repeated, lowest, highest, _ = span
            if before is None and not repeated:  # as nearly all are, of files that are read at once
                given[tag] = (lowest, highest, False)
            else:
                given[tag] = self._join(before, span, found)
        if found and self._is_partial and found[SUPERSEDED]:
            found[INEXACT] += 1
        return found

    def _join(self, before: _SeenSteps | None, span: StepSpan, found: Counter[str]) -> _SeenSteps:
        """What is given of a series with another span."""
        found[SUPERSEDED] += span.repeated
        lowest, highest, is_repeated, was_one_step = (
            span.lowest,
            span.highest,
            span.repeated > 0,
            False,
        )
        if before is not None:
            found[SUPERSEDED] += span.lowest == before[1]
            found[INEXACT] += span.lowest < before[1]
            lowest, highest, is_repeated = min(lowest, before[0]), max(highest, before[1]), True
            was_one_step = before[2]
        is_one_step = is_repeated and lowest == highest
        if not self._is_partial:
            found[ONE_STEP_SERIES] += is_one_step - was_one_step
        return lowest, highest, is_one_step
