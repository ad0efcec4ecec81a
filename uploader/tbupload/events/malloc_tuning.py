"""Tune the C library's allocator for a process that reads many chunks."""

from __future__ import annotations

from typing import Final

import numpy as np

RETAINED_BYTES: Final = 8 << 20
"""More than any array that is allocated for a chunk."""


def retain_freed_memory() -> None:
    """Make glibc retain the memory freed after each chunk, to reuse it for the next one.

    Returning it to the system and fetching it again costs a tenth of the reading time. glibc has a
    dynamic threshold: after a mapped block was freed, blocks up to its size come from the heap, and
    twice that size is retained there (`mallopt(3)`, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD). This
    block is never written to, so it costs no memory. Other C libraries are not affected.
    """
    np.empty(RETAINED_BYTES, np.uint8)
