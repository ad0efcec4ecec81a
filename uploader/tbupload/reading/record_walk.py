"""Finds where the records of a file's bytes start: each one's length says where the next one is.

That is a loop, and it would be the slowest part of reading. But jobs write the same tags in the same order step after
step, so the lengths repeat. Where they do, the next records are predicted, and all predictions checked at once against
the lengths that stand there: what is found is what the loop would have found.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

_LENGTH: Final = struct.Struct("<Q")
_FRAME_BYTES: Final = 16  # length, its checksum, the payload's checksum
_HEADER_BYTES: Final = 12

_LOOK_RECORDS: Final = 256
"""Records found one by one before a repetition is looked for."""

_PERIOD_MAX: Final = 128
"""Records after which lengths may repeat: as many tags as a job writes each step, twice over to be sure."""

Indices = npt.NDArray[np.intp]


def walk(buffer: bytes, start: int) -> tuple[Indices, int]:
    """Where each record with a whole header starts if every length is right, and where the last of them ends.

    No length's checksum is looked at. The end may be anywhere, up to 2^64 bytes past the buffer.
    """
    pieces, position, last = [np.zeros(0, np.intp)], start, len(buffer) - _HEADER_BYTES
    while position <= last:
        starts, position = _step(buffer, position)
        pieces.append(np.array(starts, np.intp))
        sizes = _repeating_sizes([*starts, position])
        while len(sizes) and position <= last:
            # Twice as far each time: a prediction that fails early has cost little.
            sizes = np.tile(sizes, 2)
            found, position = _leap(buffer, position, sizes)
            pieces.append(found)
            if len(found) < len(sizes):
                break
    return np.concatenate(pieces), position


def _step(buffer: bytes, start: int) -> tuple[list[int], int]:
    """The starts of the next few records, one by one, and where the last of them ends."""
    starts: list[int] = []
    position, last, read_length = start, len(buffer) - _HEADER_BYTES, _LENGTH.unpack_from
    while position <= last and len(starts) < _LOOK_RECORDS:
        starts.append(position)
        position += read_length(buffer, position)[0] + _FRAME_BYTES
    return starts, position


def _repeating_sizes(bounds: list[int]) -> Indices:
    """The sizes, framing included, that repeat up to the last of these bounds of records; none if none do."""
    sizes = [end - start for start, end in pairwise(bounds)]
    if len(sizes) == _LOOK_RECORDS:
        for period in range(1, _PERIOD_MAX + 1):
            if sizes[period:] == sizes[:-period]:
                return np.array(sizes[-period:] * (_LOOK_RECORDS // period), np.intp)
    return np.zeros(0, np.intp)


def _leap(buffer: bytes, start: int, sizes: Indices) -> tuple[Indices, int]:
    """The starts of the records from `start` on, as long as they have these sizes, and where the last of them ends."""
    ends = start + np.cumsum(sizes)
    starts = ends - sizes
    starts = starts[starts <= len(buffer) - _HEADER_BYTES]
    lengths = sliding_window_view(np.frombuffer(buffer, np.uint8), _LENGTH.size)[starts].view("<u8")[:, 0]
    others = np.flatnonzero(lengths != sizes[: len(starts)] - _FRAME_BYTES)
    count = int(others[0]) if len(others) else len(starts)
    return starts[:count], int(ends[count - 1]) if count else start
