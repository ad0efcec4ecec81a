"""How fast an upload has been in the last seconds, and how long that means it will take."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final

RATE_WINDOW_SECONDS: Final = 10.0
"""Rates are of about this many seconds, or of the time since the last look when that is longer."""

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86400


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes of event files and points a second."""

    bytes_per_second: float
    points_per_second: float

    def seconds_for(self, size: int) -> float | None:
        """How long this many bytes take; None while nothing moves."""
        return size / self.bytes_per_second if self.bytes_per_second > 0 else None


class ThroughputMeter:
    """Remembers what had been sent at which moment, for RATE_WINDOW_SECONDS; begins with nothing, now."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque([(time.monotonic(), 0, 0)])

    def rates(self, sent_bytes: int, points: int) -> Rates:
        """The rates of the last seconds, when this much has been sent until now."""
        now = time.monotonic()
        while len(self._samples) > 1 and self._samples[1][0] <= now - RATE_WINDOW_SECONDS:
            self._samples.popleft()
        begun, bytes_then, points_then = self._samples[0]
        self._samples.append((now, sent_bytes, points))
        seconds = max(now - begun, 1e-3)
        return Rates((sent_bytes - bytes_then) / seconds, (points - points_then) / seconds)


def duration_text(seconds: float) -> str:
    """A time as a person reads it, in its two largest units."""
    whole = round(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    if whole < DAY:
        return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"
    return f"{whole // DAY} d {whole % DAY // HOUR} h"
