"""Keeps a serving process as small after a million requests as after the first few, and its garbage collector idle.

What a batch needs while it is decoded and written is megabytes, in any of dozens of threads. Left to itself, glibc
keeps what each thread has freed in an arena of that thread's own, and takes ever larger pieces from there instead of
from the system; so a process grows with how many threads have met how large a batch, and never shrinks.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Names of `mallopt`, from glibc's malloc.h."""

_ARENAS_MAX: Final = 2
_MAPPED_BYTES_MIN: Final = 256 * 1024
"""From this size on, a piece of memory is the system's again when it is freed; set, it no longer grows by itself."""

_TRIMMED_BYTES_MIN: Final = 4 * 1024 * 1024
"""Free bytes at the end of the heap from which they are given back."""

_COLLECTED_OBJECTS_MIN: Final = 20_000
"""Objects made, less those freed, before the youngest are looked through: a batch of small series makes many, and
Python's own 700 would have everything looked through again and again while it is at work."""


def limit_memory_growth() -> None:
    """Sets both up, for this process, once everything is imported and made that stays for good."""
    if sys.platform == "linux":
        _tune_malloc()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS_MIN, *gc.get_threshold()[1:])


def _tune_malloc() -> None:
    """Tells glibc's malloc; another libc, which has no such arenas, has no `mallopt` either or passes over it."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES_MIN)
        mallopt(_M_TRIM_THRESHOLD, _TRIMMED_BYTES_MIN)
