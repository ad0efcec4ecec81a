"""TFRecord framing: where the records of a file's bytes are, and which of them are as they were written.

A record is a length (uint64), the length's masked CRC-32C (uint32), the payload, the payload's masked CRC-32C (uint32);
all little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from tbupload.events.decode.record_walk import (
    SHORT_LENGTHS,
    Buffer,
    Indices,
    find_record_starts,
    find_record_starts_in_files,
    length_checksums,
)

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES

_LENGTH: Final = struct.Struct("<Q")
_CHECKSUM: Final = struct.Struct("<I")
_LONG_LENGTH: Final = 65_535
"""Payloads of this length and more share one group: sorting 16-bit keys is several times faster."""


@dataclass(frozen=True, slots=True)
class RecordFrames:
    """The whole records of a buffer: where each starts, and its payload's length, in bytes.

    `end` is where the last of them ends. `is_corrupt` says that the header there fails its checksum: where the record
    after it begins cannot be known. `next_bytes` is how long the record at `end` is, framing included, when its header
    is there and sound, otherwise 0: it is longer than what the buffer holds of it.
    """

    starts: Indices
    lengths: Indices
    end: int
    is_corrupt: bool
    next_bytes: int


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records whose payloads have one length, by their index in `Frames`, in file order.

    Those of `_LONG_LENGTH` bytes and more are in one group whatever their length.
    """

    length: int
    records: Indices


def header_length(header: bytes) -> int | None:
    """The payload length a record's first 12 bytes tell; None when it fails its checksum."""
    (length,) = _LENGTH.unpack_from(header)
    if _CHECKSUM.unpack_from(header, 8)[0] != _masked_checksum(header[:8]):
        return None
    return int(length)


def payload(buffer: Buffer, start: int, length: int) -> bytes | None:
    """The payload of the whole record at byte `start`; None when it does not match its checksum."""
    end = start + HEADER_BYTES + length
    content = bytes(buffer[start + HEADER_BYTES : end])
    return content if _CHECKSUM.unpack_from(buffer, end)[0] == _masked_checksum(content) else None


def footer(checksum: int) -> bytes:
    """The last bytes of a record whose payload has this CRC-32C."""
    return _CHECKSUM.pack(_mask(checksum))


def find_records(buffer: Buffer, start: int) -> RecordFrames:
    """Finds the whole records of `buffer` from byte `start` on, up to the first header that fails its checksum."""
    return _check_headers(buffer, *find_record_starts(buffer, start))


def _check_headers(buffer: Buffer, starts: Indices, end: int) -> RecordFrames:
    """The records that `walk` has found, up to the first header that fails its checksum."""
    if not len(starts):
        return RecordFrames(starts, starts, end, is_corrupt=False, next_bytes=0)
    ends = np.append(starts[1:], min(end, np.iinfo(np.intp).max))
    lengths = ends - starts - FRAME_BYTES
    sound = _count_valid_headers(buffer, starts, lengths)
    if sound < len(starts):
        return RecordFrames(
            starts[:sound], lengths[:sound], int(starts[sound]), is_corrupt=True, next_bytes=0
        )
    if end <= len(buffer):
        return RecordFrames(starts, lengths, end, is_corrupt=False, next_bytes=0)
    return RecordFrames(
        starts[:-1],
        lengths[:-1],
        int(starts[-1]),
        is_corrupt=False,
        next_bytes=end - int(starts[-1]),
    )


def first_records(frames: RecordFrames, count: int) -> RecordFrames:
    """The first `count` records, fewer than there are."""
    return RecordFrames(
        frames.starts[:count],
        frames.lengths[:count],
        int(frames.starts[count]),
        is_corrupt=False,
        next_bytes=0,
    )


def drop_corrupt_end(buffer: Buffer, frames: RecordFrames) -> RecordFrames:
    """The same records but for the last one, if that does not match its checksum."""
    if (
        not len(frames.starts)
        or payload(buffer, int(frames.starts[-1]), int(frames.lengths[-1])) is not None
    ):
        return frames
    return replace(
        frames, starts=frames.starts[:-1], lengths=frames.lengths[:-1], end=int(frames.starts[-1])
    )


def find_joined_records(buffer: Buffer, bounds: list[int]) -> list[RecordFrames]:
    """The records of files that lie in the buffer one after the other, of each as `frame` finds them in it alone.

    Of n files, the n + 1 `bounds` say where each begins and the last one ends.
    """
    joined = _check_headers(buffer[: bounds[-1]], *find_record_starts_in_files(buffer, bounds))
    # As long as a record ends where a file does, none was taken for a part of another file.
    ends = np.array(bounds[1:])
    places = np.searchsorted(joined.starts, ends)
    is_whole = (np.append(joined.starts, joined.end)[places] == ends).tolist()
    files, start, are_whole = [], 0, True
    for bound, end, place, ends_there in zip(
        bounds, bounds[1:], places.tolist(), is_whole, strict=False
    ):
        are_whole = are_whole and ends_there
        if are_whole:
            part = slice(start, place)
            files.append(
                RecordFrames(
                    joined.starts[part], joined.lengths[part], end, is_corrupt=False, next_bytes=0
                )
            )
            start = place
        else:
            files.append(find_records(buffer[:end], bound))
    return files


def join(files: list[RecordFrames]) -> RecordFrames:
    """The records of several files in one buffer, in the order given."""
    return RecordFrames(
        np.concatenate([frames.starts for frames in files]),
        np.concatenate([frames.lengths for frames in files]),
        files[-1].end,
        is_corrupt=False,
        next_bytes=0,
    )


def group_by_length(frames: RecordFrames, records: Indices) -> Iterator[RecordGroup]:
    """These records, grouped by their payload's length, shortest first."""
    keys = np.minimum(frames.lengths[records], _LONG_LENGTH).astype(np.uint16)
    order = np.argsort(keys, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(group):
            yield RecordGroup(int(keys[group[0]]), records[group])


def _count_valid_headers(buffer: Buffer, starts: Indices, lengths: Indices) -> int:
    """How many records from the first on have a length that matches its checksum."""
    written = _view_at_every_byte(buffer, np.dtype("<u4"))[starts + _LENGTH.size]
    expected = length_checksums(np.minimum(lengths, SHORT_LENGTHS - 1))
    long = np.flatnonzero(lengths >= SHORT_LENGTHS)
    expected[long] = [_length_checksum(length) for length in lengths[long].tolist()]
    unsound = np.flatnonzero(written != expected)
    return int(unsound[0]) if len(unsound) else len(starts)


def _view_at_every_byte(buffer: Buffer, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What stands at every byte of the buffer, taken as this type: a view, from which few are taken."""
    return np.ndarray((len(buffer) - dtype.itemsize + 1,), dtype, buffer, strides=(1,))


def _length_checksum(length: int) -> int:
    return _masked_checksum(_LENGTH.pack(length))


def _masked_checksum(content: bytes) -> int:
    return _mask(google_crc32c.value(content))


def _mask(checksum: int) -> int:
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
