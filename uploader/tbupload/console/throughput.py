"""The rates of an upload over the last seconds, and the time left at those rates."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

RATE_WINDOW_SECONDS: Final = 10.0
"""Time that rates are measured over, or that since the last sample if it is longer."""

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400


@dataclass(frozen=True)
class Rates:
    """Bytes of event files and points per second."""

    bytes_per_second: float
    points_per_second: float

    def seconds_for(self, size: int) -> float | None:
        """Return how long `size` bytes take; None at a rate of zero."""
        return size / self.bytes_per_second if self.bytes_per_second > 0 else None


class ThroughputMeter:
    """Measures rates from samples of the last RATE_WINDOW_SECONDS; starts at zero, now."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])

    def rates(self, sent_bytes: int, points: int) -> Rates:
        """Add a sample of what has been sent so far, and return the rates."""
        now = time.monotonic()
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_WINDOW_SECONDS:
            self._samples.popleft()
        then, bytes_then, points_then = self._samples[0]
        self._samples.append((now, sent_bytes, points))
        seconds = max(now - then, 1e-3)
        return Rates((sent_bytes - bytes_then) / seconds, (points - points_then) / seconds)


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"
