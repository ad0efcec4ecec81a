"""CRC-32C of many byte strings of one length at once, by the checksum's linearity.

A CRC is linear over exclusive-or: two strings of one length differ in their checksum by the
exclusive-or of what each differing byte contributes, and a contribution depends only on the two
byte values and on how many bytes follow. So the checksum of the first row is computed in the usual
way, and those of all other rows by one table look-up per column that is not constant.
"""

from __future__ import annotations

import threading
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from tbupload.events.tf_record import MASK_DELTA

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli polynomial, bits reversed (RFC 3720, section 12.1, names it 0x11EDC6F41)."""

_COLUMNS_MAX: Final = 64
"""With more differing columns, a call per row is cheaper than the look-ups."""

_TABLE_COLUMNS_MAX: Final = 4096
"""Longer rows are checked one by one, so that the tables stay below 4 MiB."""

Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]


def checksums(rows: Bytes, differing: npt.NDArray[np.intp]) -> Checksums:
    """Return the CRC-32C of each row of the (n, length) matrix `rows`, n > 0.

    `differing` lists the columns that are not constant; listing constant ones does no harm.
    """
    length = rows.shape[1]
    if len(differing) > _COLUMNS_MAX or length > _TABLE_COLUMNS_MAX:
        return np.fromiter(
            (google_crc32c.value(row.tobytes()) for row in rows), np.uint32, len(rows)
        )

    sums = np.zeros(len(rows), np.uint32)
    for column in differing.tolist():
        # A byte is always a valid index: "wrap" only avoids the bounds check of the default mode.
        sums ^= _table(length - 1 - column).take(rows[:, column], mode="wrap")
    return np.asarray(sums ^ sums[0] ^ np.uint32(google_crc32c.value(rows[0].tobytes())))


def mask(sums: Checksums) -> Checksums:
    """Return the checksums as records contain them: `tf_record.mask_checksum` of a column."""
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(MASK_DELTA)


def _table(following: int) -> Checksums:
    """Return what each byte value contributes to the checksum when `following` bytes follow it."""
    if len(_TABLES) <= following:
        with _growing:  # threads may read files at the same time
            while len(_TABLES) <= following:
                before = _TABLES[-1]
                _TABLES.append((before >> np.uint32(8)) ^ _TABLES[0][before & np.uint32(0xFF)])
    return _TABLES[following]


def _last_byte_table() -> Checksums:
    sums = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        sums = (sums >> np.uint32(1)) ^ np.where(
            sums & np.uint32(1), np.uint32(_POLYNOMIAL), np.uint32(0)
        )
    return sums


_growing: Final = threading.Lock()

_TABLES: Final[list[Checksums]] = [_last_byte_table()]
"""Tables by the number of following bytes; grows by 1 KiB per byte of the longest record so far."""
