"""Memory settings of a serving process: glibc's malloc and Python's garbage collector.

Decoding and writing a batch takes megabytes, in any of dozens of threads. By default glibc has an
arena per thread, stores freed memory there, and raises its threshold for using mmap. A process
then grows with the number of threads and the size of their batches, and never shrinks.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of `mallopt` (glibc's malloc.h)."""

_ARENAS_MAX: Final = 2
_MAPPED_BYTES_MIN: Final = 256 * 1024
"""Bytes from which an allocation is mapped, and unmapped when it is freed.

Setting it also stops glibc from raising it (mallopt(3), M_MMAP_THRESHOLD).
"""

_TRIMMED_BYTES_MIN: Final = 4 * 1024 * 1024
"""Free bytes at the end of the heap from which they are returned to the system."""

_COLLECTED_OBJECTS_MIN: Final = 20_000
"""Allocations minus deallocations that start a collection of the youngest generation.

A batch of many small series allocates many objects; with Python's default of 700 it would be
interrupted by hundreds of collections.
"""

_COLLECTIONS_OF_YOUNGER: Final = (2, 50)
"""Collections of the youngest generation that start one of the next, and of that one the oldest.

With Python's default of 10, refused connections by the thousand, which end in cycles, let one of
the next stop all threads for 0.2 s.
"""


def limit_memory_growth() -> None:
    """Tune malloc and the garbage collector. Call it when all long-lived objects exist."""
    if sys.platform == "linux":
        _tune_malloc()
    gc.collect()
    gc.freeze()
    gc.enable()  # `tbservice` starts without
    gc.set_threshold(_COLLECTED_OBJECTS_MIN, *_COLLECTIONS_OF_YOUNGER)


def _tune_malloc() -> None:
    """Tune glibc's malloc; other C libraries have no `mallopt`, or one without effect."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, _TRIMMED_BYTES_MIN)
