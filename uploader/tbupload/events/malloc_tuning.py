"""Keeps memory that was freed for the next chunk of a file."""

from __future__ import annotations

from typing import Final

import numpy as np

RETAINED_BYTES: Final = 8 << 20
"""More than any array that is made for a chunk."""


def retain_freed_memory() -> None:
    """Has the C library keep what it would give back to the system after each chunk, to fetch it again for the next.

    That is a tenth of what reading costs. glibc keeps twice as much as the largest piece that was freed before; this
    one, which is never written to, is such a piece. Other C libraries do as they do.
    """
    np.empty(RETAINED_BYTES, np.uint8)
