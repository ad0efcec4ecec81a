"""A scheduler of polls: entries that changed recently often, quiet ones rarely, in a share of time.

It does not know what an entry is or how it is polled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

POLLS_PER_QUIET_TIME: Final = 200
"""An entry quiet for a time is polled with this fraction of it as period: 0.2 s after 40 s."""

POLL_SECONDS_MAX: Final = 0.05
"""Time for the polls of one round, so that nothing else waits longer for them."""

BACKLOG_SECONDS: Final = 0.5
"""Pause before the next round if this one had no time for all polls that were due."""

Entry = TypeVar("Entry")


class _PollQueue(Generic[Entry]):
    """A token bucket: entries polled in turn, each every `period_seconds`; a token is one poll."""

    def __init__(self, period_seconds: float) -> None:
        self.period_seconds = period_seconds
        self.entries: deque[Entry] = deque()
        self.tokens = 0.0

    @property
    def is_ready(self) -> bool:
        # Half a token: a clock that is a little early does not delay the poll by a round.
        return self.tokens >= 0.5 and bool(self.entries)  # noqa: PLR2004

    def refill(self, seconds: float) -> None:
        """Add the tokens of a time, up to one for each entry."""
        # At most one for each entry: after a long pause, nothing is polled twice in a row.
        self.tokens = min(
            float(len(self.entries)),
            self.tokens + len(self.entries) * seconds / self.period_seconds,
        )

    def pop(self) -> Entry:
        self.tokens -= 1.0
        return self.entries.popleft()


class PollScheduler(Generic[Entry]):
    """Entries to be polled again and again, in queues each with twice the period of the one before.

    An entry leaves the scheduler when it is returned as ready, until it is added again.

    Args:
        period_seconds: The shortest period.
        period_seconds_max: The longest period.
        share: Share of the time that polls may take. Beyond it they are delayed, those of quiet
            entries most.
        now: A monotonic clock in seconds.
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
        """Poll an entry from now on, at a period for its last change `quiet_seconds` ago."""
        period = quiet_seconds / POLLS_PER_QUIET_TIME
        nearest = self._queues[0]
        for shorter, longer in zip(self._queues, self._queues[1:]):
            # The longer period from halfway on: the entry will have been quiet longer soon.
            if period <= (shorter.period_seconds + longer.period_seconds) / 2:
                break
            nearest = longer
        nearest.entries.append(entry)

    def ready(self) -> Iterator[Entry]:
        """Yield the entries to poll now, those with short periods first, while there is time.

        The caller polls each before it asks for the next: the time in between is that of the poll.
        """
        began = self._now()
        elapsed, self._polled_at = began - self._polled_at, began
        self._seconds_left = min(POLL_SECONDS_MAX, self._seconds_left + self._share * elapsed)
        for queue in self._queues:
            queue.refill(elapsed)

        left = self._seconds_left
        for index, queue in enumerate(self._queues):
            # At most half of what is left, so that every queue with polls due has some time.
            is_last = not any(longer.is_ready for longer in self._queues[index + 1 :])
            queue_began = self._now()
            end = queue_began + (left if is_last else left / 2)
            while queue.is_ready:
                yield queue.pop()
                if self._now() >= end:
                    break
            left -= self._now() - queue_began
        # A debt of one round at most: one poll that hung must not stop all for minutes.
        self._seconds_left = max(left, -POLL_SECONDS_MAX)

    def pause_seconds(self) -> float:
        """Return how long to pause before the next round."""
        pause = min(
            # The shortest period in use, so that a quiet directory lets the process sleep.
            (queue.period_seconds for queue in self._queues if queue.entries),
            default=self._queues[-1].period_seconds,
        )
        has_backlog = any(queue.is_ready for queue in self._queues)
        return min(pause, BACKLOG_SECONDS) if has_backlog else pause

    def pop_all(self) -> list[Entry]:
        """Remove and return all entries, for a poll of each at once."""
        entries: list[Entry] = []
        for queue in self._queues:
            entries.extend(queue.entries)
            queue.entries.clear()
        return entries
