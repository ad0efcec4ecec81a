"""Finds where the records of a file's bytes start: each one's length says where the next one is.

That is a loop, and it would be the slowest part of reading. But a record of a scalar is short, and begins with a header
that little else looks like: a small length, six zeros, and the length's checksum. So all places that look like one are
found at once, and believed as long as each is where the one before says. And where jobs write the same tags in the same
order step after step, lengths repeat: the next ones are predicted. What is found is what the loop would have found.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tbupload.events import linear_checksum
from tbupload.events.decode.record_periods import find_period

_LENGTH: Final = struct.Struct("<Q")
_FRAME_BYTES: Final = 16  # length, its checksum, the payload's checksum
_HEADER_BYTES: Final = 12
_HEADER: Final = np.dtype([("length", "<u2"), ("zeros", "V6"), ("checksum", "<u4")])

_LOOK_RECORDS: Final = 16
"""Records found one by one before their headers are looked for all at once."""

_SHORT_RECORD_BYTES: Final = 512
"""Records that are longer on average are found one by one: looking at all of their bytes costs more."""

_LOOK_BYTES_MIN: Final = 8_192
_LOOK_BYTES_MAX: Final = 262_144
"""How far ahead is looked at first; twice as far each time, so that a look that finds little has cost little.

No further than what is made of it stays in a processor's cache, and after a repetition that ended as at first.
"""

_EXTRAPOLATED_RECORDS: Final = 256
"""How many records are predicted at first, about."""

SHORT_LENGTHS: Final = 1 << 16
"""Lengths of payloads below this are short: a table has their checksums."""

Buffer = bytes | memoryview
"""The bytes of a file, or a part of them."""

Indices = npt.NDArray[np.intp]


def find_record_starts(buffer: Buffer, start: int) -> tuple[Indices, int]:
    """Where each record with a whole header starts if every length is right, and where the last of them ends.

    Lengths need not match their checksums. The end may be anywhere, up to 2^64 bytes past the buffer.
    """
    pieces, position, last = [np.zeros(0, np.intp)], start, len(buffer) - _HEADER_BYTES
    while position <= last:
        before = position
        starts, position = _walk_few(buffer, position)
        pieces.append(np.array(starts, np.intp))
        is_worthwhile = position - before <= _SHORT_RECORD_BYTES * _LOOK_RECORDS
        reach = _LOOK_BYTES_MIN
        while is_worthwhile and position <= last:
            found, position, is_worthwhile = _look_ahead(
                buffer, position, min(position + reach, len(buffer))
            )
            predicted, position = _extrapolate(buffer, position, _repeating_sizes(found, position))
            pieces += [found, *predicted]
            reach = _LOOK_BYTES_MIN if predicted else min(2 * reach, _LOOK_BYTES_MAX)
    return np.concatenate(pieces), position


def find_record_starts_in_files(buffer: Buffer, bounds: list[int]) -> tuple[Indices, int]:
    """The same for files that lie in the buffer one after the other; ends with the first that does not end in a record.

    Of n files, the n + 1 `bounds` say where each begins and the last one ends. Jobs of one kind write the same tags in
    the same order: the sizes of a file's records are predicted from those of the file before.
    """
    pieces, position, sizes = [np.zeros(0, np.intp)], bounds[0], np.zeros(0, np.intp)
    for begin, end in pairwise(bounds):
        predicted, position = _follow(buffer[:end], begin, sizes)
        pieces.append(predicted)
        if position == end:
            continue
        found, position = find_record_starts(buffer[:end], position)
        pieces.append(found)
        if position != end:
            break
        sizes = np.diff(np.concatenate([predicted, found]), append=end)
    return np.concatenate(pieces), position


def length_checksums(lengths: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The masked CRC-32C of short lengths."""
    checksums: npt.NDArray[np.uint32] = _SHORT_LENGTH_CHECKSUMS[lengths]
    return checksums


def _walk_few(buffer: Buffer, start: int) -> tuple[list[int], int]:
    """The starts of the next few records, one by one, and where the last of them ends."""
    starts: list[int] = []
    position, last, read_length = start, len(buffer) - _HEADER_BYTES, _LENGTH.unpack_from
    while position <= last and len(starts) < _LOOK_RECORDS:
        starts.append(position)
        position += read_length(buffer, position)[0] + _FRAME_BYTES
    return starts, position


def _look_ahead(buffer: Buffer, start: int, stop: int) -> tuple[Indices, int, bool]:
    """The starts of the records from `start` on whose headers are in front of `stop`, where the last of them ends.

    As far as they are short and sound; the third part of the answer is whether all were.
    """
    places, lengths = _short_headers(buffer, start, stop)
    if not len(places) or places[0] != start:
        return places[:0], start, False
    ends = places + lengths + _FRAME_BYTES
    breaks = np.flatnonzero(places[1:] != ends[:-1])
    count = int(breaks[0]) + 1 if len(breaks) else len(places)
    end = int(ends[count - 1])
    return places[:count], end, end > stop - _HEADER_BYTES


def _repeating_sizes(starts: Indices, end: int) -> Indices:
    """The sizes, framing included, that repeat up to `end` in these records; none if none do."""
    sizes = np.diff(starts, append=end)
    period = find_period(sizes.astype(np.uint32))
    return sizes[len(sizes) - period :]


def _extrapolate(buffer: Buffer, start: int, sizes: Indices) -> tuple[list[Indices], int]:
    """The starts of the records from `start` on, as long as these sizes repeat, and where the last of them ends."""
    pieces, position, count = [], start, len(sizes)
    if count:
        sizes = np.tile(sizes, -(-_EXTRAPOLATED_RECORDS // count))
        count = len(sizes)
    while count == len(sizes) and count and position <= len(buffer) - _HEADER_BYTES:
        sizes = np.tile(
            sizes, 2
        )  # twice as far each time: a prediction that fails early has cost little
        starts, position = _follow(buffer, position, sizes)
        pieces.append(starts)
        count = len(starts)
    return pieces, position


def _follow(buffer: Buffer, start: int, sizes: Indices) -> tuple[Indices, int]:
    """The starts of the records from `start` on, as long as they have these sizes, and where the last of them ends."""
    ends = start + np.cumsum(sizes)
    starts = ends - sizes
    starts = starts[: int(np.searchsorted(starts, len(buffer) - _HEADER_BYTES, "right"))]
    if not len(starts):
        return starts, start
    lengths = np.ndarray((len(buffer) - _LENGTH.size + 1,), "<u8", buffer, strides=(1,))[starts]
    is_other = lengths != sizes[: len(starts)] - _FRAME_BYTES
    count = int(is_other.argmax()) if is_other.any() else len(starts)
    return starts[:count], int(ends[count - 1]) if count else start


def _short_headers(buffer: Buffer, start: int, stop: int) -> tuple[Indices, Indices]:
    """Every place in [start, stop) where the bytes are a sound header of a short record, and the length there."""
    is_zero = np.frombuffer(buffer, np.uint8, stop - start, start) == 0
    for distance in (1, 2, 2):  # runs of two zeros, of four, of six
        is_zero = is_zero[:-distance] & is_zero[distance:]
    places = np.flatnonzero(is_zero) + (start - 2)
    places = places[(places >= start) & (places <= stop - _HEADER_BYTES)]
    # Taken as bytes first: numpy takes those much faster than fields.
    overlapping: npt.NDArray[Any] = np.ndarray(
        (len(buffer) - _HEADER_BYTES + 1,), "V12", buffer, strides=(1,)
    )
    headers = overlapping[places].view(_HEADER)
    lengths = headers["length"]
    is_sound = length_checksums(lengths) == headers["checksum"]
    return places[is_sound], lengths[is_sound].astype(np.intp)


def _checksums_of_short_lengths() -> npt.NDArray[np.uint32]:
    lengths = np.arange(SHORT_LENGTHS, dtype="<u8").view(np.uint8).reshape(-1, _LENGTH.size)
    return linear_checksum.mask(linear_checksum.checksums(lengths, np.arange(2)))


_SHORT_LENGTH_CHECKSUMS: Final = _checksums_of_short_lengths()
