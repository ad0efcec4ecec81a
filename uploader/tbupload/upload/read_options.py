"""How event files are read: the filter, the limits, and whether they may still grow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tbupload.events.filters import SeriesFilter
from tbupload.http.wire_limits import WireLimits


@dataclass(frozen=True)
class ReadOptions:
    """How all files of one upload are read.

    `is_final` means that nothing is written to them any more: the end of a file is the end of its
    data, and damage needs no confirmation. `warn` is called with sentences for the user. `clock`
    is monotonic, in seconds.
    """

    series_filter: SeriesFilter
    limits: WireLimits
    is_final: bool
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
