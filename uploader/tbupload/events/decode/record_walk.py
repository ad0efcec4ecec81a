"""Find where the records of a buffer start, from their lengths.

Each length leads to the next record. As a loop, that would be the slowest part of reading. Two
observations avoid it:

- A short record begins with bytes that little else resembles: a length below 2^16, six zero bytes,
  and the length's checksum. So the bytes that look like a header are found everywhere at once, and
  accepted as long as each is exactly where the previous record ends.
- Jobs write the same tags in the same order, so the sizes of records repeat. Once a period is
  found, the next starts are predicted and only compared with the lengths in the buffer.

The result is the same as the loop's: a test compares the two on hostile bytes.
"""

from __future__ import annotations

from typing import Any, Final, Union

import numpy as np
import numpy.typing as npt

from tbupload.events import linear_checksum
from tbupload.events.decode.record_periods import find_period
from tbupload.events.tf_record import FRAME_BYTES, HEADER_BYTES, LENGTH

_SHORT_HEADER: Final = np.dtype([("length", "<u2"), ("zeros", "V6"), ("checksum", "<u4")])
"""The header of a record shorter than 64 KiB: the upper six bytes of its length are zeros."""

_LOOP_RECORDS: Final = 16
"""Records that are found one by one before headers are searched for in bulk."""

_SHORT_RECORD_BYTES: Final = 512
"""Longer records (on average) are found one by one: a search reads every byte of them."""

_SEARCH_BYTES_MIN: Final = 8_192
_SEARCH_BYTES_MAX: Final = 262_144
"""Bytes of the first search and of the longest one; each is twice as long as the one before.

A search that fails early has cost little, and the longest one's arrays still fit a CPU cache. After
a period has ended, the next search is short again.
"""

_PREDICTED_RECORDS_MIN: Final = 256
"""Records in the first prediction, about."""

SHORT_LENGTHS: Final = 1 << 16
"""Payload lengths below this have their checksum in a table."""

Buffer = Union[bytes, memoryview]
"""Bytes of a file, all or a range."""

Indices = npt.NDArray[np.intp]


def find_record_starts(buffer: Buffer, start: int) -> tuple[Indices, int]:
    """Return where each record with a complete header starts, and where the last of them ends.

    Lengths are used without checking them, so the end may be up to 2^64 bytes past the buffer.
    """
    chunks, position, last = [np.zeros(0, np.intp)], start, len(buffer) - HEADER_BYTES
    while position <= last:
        before = position
        starts, position = _walk_few(buffer, position)
        chunks.append(np.array(starts, np.intp))

        is_worthwhile = position - before <= _SHORT_RECORD_BYTES * _LOOP_RECORDS
        reach = _SEARCH_BYTES_MIN
        while is_worthwhile and position <= last:
            starts_ahead, position, is_worthwhile = _search_headers(
                buffer, position, min(position + reach, len(buffer))
            )
            predicted, position = _extrapolate(
                buffer, position, _repeating_sizes(starts_ahead, position)
            )
            chunks += [starts_ahead, *predicted]
            # After a prediction, the sizes have changed: begin with little again.
            reach = _SEARCH_BYTES_MIN if predicted else min(2 * reach, _SEARCH_BYTES_MAX)
    return np.concatenate(chunks), position


def find_record_starts_in_files(buffer: Buffer, bounds: list[int]) -> tuple[Indices, int]:
    """Return the same for joined files, up to the first file that does not end with a record.

    Jobs of one kind write the same tags in the same order, so the sizes of a file's records are
    predicted from those of the file before.

    Args:
        buffer: The files' bytes, one file after the other.
        bounds: For n files, n + 1 offsets: where each file begins, and where the last one ends.
    """
    chunks, position, sizes = [np.zeros(0, np.intp)], bounds[0], np.zeros(0, np.intp)
    for begin, end in zip(bounds, bounds[1:]):
        predicted, position = _follow(buffer[:end], begin, sizes)
        chunks.append(predicted)
        if position == end:
            continue
        starts, position = find_record_starts(buffer[:end], position)
        chunks.append(starts)
        if position != end:
            break
        sizes = np.diff(np.concatenate([predicted, starts]), append=end)
    return np.concatenate(chunks), position


def length_checksums(lengths: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return the masked CRC-32C of lengths below `SHORT_LENGTHS`."""
    checksums: npt.NDArray[np.uint32] = _SHORT_LENGTH_CHECKSUMS[lengths]
    return checksums


def _walk_few(buffer: Buffer, start: int) -> tuple[list[int], int]:
    """Return the starts of the next `_LOOP_RECORDS` records, and where the last of them ends."""
    starts: list[int] = []
    position, last, read_length = start, len(buffer) - HEADER_BYTES, LENGTH.unpack_from
    while position <= last and len(starts) < _LOOP_RECORDS:
        starts.append(position)
        position += read_length(buffer, position)[0] + FRAME_BYTES
    return starts, position


def _search_headers(buffer: Buffer, start: int, stop: int) -> tuple[Indices, int, bool]:
    """Find records by the looks of their headers, from `start` on.

    Returns:
        The starts of consecutive short records with complete headers before `stop`; where the last
        of them ends; and whether all records up to `stop` were found.
    """
    positions, lengths = _short_headers(buffer, start, stop)
    if not len(positions) or positions[0] != start:
        return positions[:0], start, False
    ends = positions + lengths + FRAME_BYTES
    breaks = np.flatnonzero(positions[1:] != ends[:-1])
    count = int(breaks[0]) + 1 if len(breaks) else len(positions)
    end = int(ends[count - 1])
    return positions[:count], end, end > stop - HEADER_BYTES


def _repeating_sizes(starts: Indices, end: int) -> Indices:
    """Return the sizes (framing included) of the last period before `end`; empty if none."""
    sizes = np.diff(starts, append=end)
    period = find_period(sizes.astype(np.uint32))
    return sizes[len(sizes) - period :]


def _extrapolate(buffer: Buffer, start: int, sizes: Indices) -> tuple[list[Indices], int]:
    """Return the starts of records from `start` while `sizes` repeat, and where the last one ends.

    Each prediction is twice as long as the one before: one that fails early has cost little.
    """
    chunks, position, count = [], start, len(sizes)
    if count:
        sizes = np.tile(sizes, -(-_PREDICTED_RECORDS_MIN // count))
        count = len(sizes)
    while count == len(sizes) and count and position <= len(buffer) - HEADER_BYTES:
        sizes = np.tile(sizes, 2)
        starts, position = _follow(buffer, position, sizes)
        chunks.append(starts)
        count = len(starts)
    return chunks, position


def _follow(buffer: Buffer, start: int, sizes: Indices) -> tuple[Indices, int]:
    """Return the starts of the records from `start` that have `sizes`, and where the last ends."""
    ends = start + np.cumsum(sizes)
    starts = ends - sizes
    starts = starts[: int(np.searchsorted(starts, len(buffer) - HEADER_BYTES, "right"))]
    if not len(starts):
        return starts, start
    # A view with an element at every byte, of which only those at `starts` are copied.
    lengths = np.ndarray((len(buffer) - LENGTH.size + 1,), "<u8", buffer, strides=(1,))[starts]
    is_other = lengths != sizes[: len(starts)] - FRAME_BYTES
    count = int(is_other.argmax()) if is_other.any() else len(starts)
    return starts[:count], int(ends[count - 1]) if count else start


def _short_headers(buffer: Buffer, start: int, stop: int) -> tuple[Indices, Indices]:
    """Return each position in [start, stop) with a valid short header, and its length."""
    is_zero = np.frombuffer(buffer, np.uint8, stop - start, start) == 0
    for distance in (1, 2, 2):  # becomes: two zeros in a row, four, six
        is_zero = is_zero[:-distance] & is_zero[distance:]
    positions = np.flatnonzero(is_zero) + (start - 2)
    positions = positions[(positions >= start) & (positions <= stop - HEADER_BYTES)]

    # Gathered as 12 opaque bytes: numpy is much slower at gathering structured elements.
    overlapping: npt.NDArray[Any] = np.ndarray(
        (len(buffer) - HEADER_BYTES + 1,), "V12", buffer, strides=(1,)
    )
    headers = overlapping[positions].view(_SHORT_HEADER)
    lengths = headers["length"]
    is_valid = length_checksums(lengths) == headers["checksum"]
    return positions[is_valid], lengths[is_valid].astype(np.intp)


def _checksums_of_short_lengths() -> npt.NDArray[np.uint32]:
    lengths = np.arange(SHORT_LENGTHS, dtype="<u8").view(np.uint8).reshape(-1, LENGTH.size)
    return linear_checksum.mask(linear_checksum.checksums(lengths, np.arange(2)))


_SHORT_LENGTH_CHECKSUMS: Final = _checksums_of_short_lengths()
