"""How often things are looked at: those that just changed often, quiet ones ever more rarely, within a share of time.

Nothing here knows what is looked at; the clock is passed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, Generic, TypeVar

POLLS_PER_QUIET_TIME: Final = 200
"""A thing that has been quiet for a while is looked at this many times in as long a while: 40 s quiet, every 0.2 s."""

POLL_SECONDS_MAX: Final = 0.05
"""The looks of one turn take no longer, so that whatever else is to be done waits no longer for them."""

BACKLOG_SECONDS: Final = 0.5
"""When not all looks that were due had room in a turn, the next one comes after this long."""

Entry = TypeVar("Entry")


class _PollQueue(Generic[Entry]):
    """Things looked at every `period_seconds`, round and round; `credit` is how many looks are due now."""

    def __init__(self, period_seconds: float) -> None:
        self.period_seconds = period_seconds
        self.entries: deque[Entry] = deque()
        self.tokens = 0.0

    @property
    def is_ready(self) -> bool:
        return self.tokens >= 0.5 and bool(self.entries)  # noqa: PLR2004 - a clock that is a little early still counts

    def refill(self, seconds: float) -> None:
        """Looks become due with time, never more than there are things."""
        self.tokens = min(
            float(len(self.entries)),
            self.tokens + len(self.entries) * seconds / self.period_seconds,
        )

    def pop(self) -> Entry:
        self.tokens -= 1.0
        return self.entries.popleft()


class PollScheduler(Generic[Entry]):
    """Things to be looked at again and again: a few lanes, each with twice the period of the one before it.

    Looking takes at most `share` of the time; what has no room comes later, the quiet things latest. A thing that was
    handed out is forgotten until it is added again. `now` is a clock in seconds that never goes back.
    """

    def __init__(
        self,
        period_seconds: float,
        period_seconds_max: float,
        share: float,
        now: Callable[[], float],
    ) -> None:
        periods = [min(period_seconds, period_seconds_max)]
        while periods[-1] * 2 < period_seconds_max:
            periods.append(periods[-1] * 2)
        if periods[-1] < period_seconds_max:
            periods.append(period_seconds_max)
        self._queues: list[_PollQueue[Entry]] = [_PollQueue(period) for period in periods]
        self._share = share
        self._now = now
        self._polled_at = now()
        self._seconds_left = POLL_SECONDS_MAX

    def add(self, entry: Entry, quiet_seconds: float) -> None:
        """Looks at it from now on; `quiet_seconds` have gone by since it changed last."""
        wanted = quiet_seconds / POLLS_PER_QUIET_TIME
        chosen = self._queues[0]
        for before, lane in pairwise(self._queues):
            # Halfway is enough: a thing that is looked at a little too seldom for now will be quieter soon.
            if wanted <= (before.period_seconds + lane.period_seconds) / 2:
                break
            chosen = lane
        chosen.entries.append(entry)

    def ready(self) -> Iterator[Entry]:
        """The things whose turn it is, often-changing ones first, as many as there is time for.

        The time between two of them is taken as that of the look.
        """
        began = self._now()
        elapsed, self._polled_at = began - self._polled_at, began
        self._seconds_left = min(POLL_SECONDS_MAX, self._seconds_left + self._share * elapsed)
        for lane in self._queues:
            lane.refill(elapsed)
        left = self._seconds_left
        for index, lane in enumerate(self._queues):
            is_last = not any(each.is_ready for each in self._queues[index + 1 :])
            lane_began = self._now()
            end = lane_began + (left if is_last else left / 2)
            while lane.is_ready:
                yield lane.pop()
                if self._now() >= end:
                    break
            left -= self._now() - lane_began
        self._seconds_left = max(left, -POLL_SECONDS_MAX)

    def pause_seconds(self) -> float:
        """How long nothing is due, at most."""
        pause = min(
            (lane.period_seconds for lane in self._queues if lane.entries),
            default=self._queues[-1].period_seconds,
        )
        return min(pause, BACKLOG_SECONDS) if any(lane.is_ready for lane in self._queues) else pause

    def pop_all(self) -> list[Entry]:
        """Everything that is in the lanes, for one look at each outside all pacing; they are to be added again."""
        entries: list[Entry] = []
        for lane in self._queues:
            entries.extend(lane.entries)
            lane.entries.clear()
        return entries
