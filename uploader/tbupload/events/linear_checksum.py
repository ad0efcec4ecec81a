"""CRC-32C of many byte strings of one length at once, by the checksum's linearity.

Two strings of one length differ in their checksum by the exclusive-or of what each differing byte contributes, and that
depends only on the two bytes and on how many bytes follow. So the first row is computed as usual, and every other row
by one table look-up for each column that is not the same in all rows.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's polynomial, bits reversed."""

_COLUMNS_MAX: Final = 64
"""With more differing columns, a call for each row costs less than the look-ups."""

_TABLE_COLUMNS_MAX: Final = 4096
"""Longer rows are done one by one, so that the tables stay under 4 MiB."""

Bytes = npt.NDArray[np.uint8]
Checksums = npt.NDArray[np.uint32]


def checksums(rows: Bytes, differing: npt.NDArray[np.intp]) -> Checksums:
    """CRC-32C of each row of the (n, length) matrix `rows`, n > 0.

    `differing` holds the columns, counted from 0, that are not the same in all rows; it may hold others too.
    """
    length = rows.shape[1]
    if len(differing) > _COLUMNS_MAX or length > _TABLE_COLUMNS_MAX:
        return np.fromiter(
            (google_crc32c.value(row.tobytes()) for row in rows), np.uint32, len(rows)
        )
    sums = np.zeros(len(rows), np.uint32)
    for column in differing.tolist():
        sums ^= _table(length - 1 - column).take(
            rows[:, column], mode="wrap"
        )  # no index needs it, but it is fastest
    return np.asarray(sums ^ sums[0] ^ np.uint32(google_crc32c.value(rows[0].tobytes())))


def mask(sums: Checksums) -> Checksums:
    """The checksums as TFRecord files hold them: rotated right by 15 bits, plus a constant."""
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(0xA282EAD8)


def _table(following: int) -> Checksums:
    """What each byte value contributes to the checksum when `following` bytes come after it."""
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


_TABLES: Final[list[Checksums]] = [_last_byte_table()]
"""By the number of following bytes; grows as longer records are met, by 1 KiB each."""
