"""Find the records in a buffer of event file bytes, and check their headers in bulk.

The layout of a record is described in `tf_record`. Payloads are not checked here but where they are
decoded: all of one length at once (`decode.record_rows`), or one by one (`payload`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

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
from tbupload.events.tf_record import CHECKSUM, FRAME_BYTES, HEADER_BYTES, LENGTH, masked_checksum

_LONG_LENGTH: Final = 65_535
"""Payloads of this length or more share one group: sorting 16-bit keys is several times faster."""


@dataclass(frozen=True)
class RecordFrames:
    """The complete records of a buffer, in file order.

    Attributes:
        starts: Byte offset of each record.
        lengths: Length of each record's payload, in bytes.
        end: Byte offset at which the last of them ends.
        is_corrupt: The header at `end` fails its checksum, so the next record cannot be found.
        next_bytes: Size of the record at `end`, framing included, if its header is complete and
            valid; 0 otherwise. It is longer than the rest of the buffer.
    """

    starts: Indices
    lengths: Indices
    end: int
    is_corrupt: bool
    next_bytes: int


@dataclass(frozen=True)
class RecordGroup:
    """Records with payloads of one length, by their index in `RecordFrames`, in file order.

    Records of `_LONG_LENGTH` bytes or more are in one group, although their lengths differ.
    """

    length: int
    records: Indices


def header_length(header: bytes) -> int | None:
    """Return the payload length in a record's first 12 bytes; None when it fails its checksum."""
    (length,) = LENGTH.unpack_from(header)
    if CHECKSUM.unpack_from(header, LENGTH.size)[0] != masked_checksum(header[: LENGTH.size]):
        return None
    return int(length)


def payload(buffer: Buffer, start: int, length: int) -> bytes | None:
    """Return the payload of the record at byte `start`; None when it fails its checksum."""
    end = start + HEADER_BYTES + length
    content = bytes(buffer[start + HEADER_BYTES : end])
    return content if CHECKSUM.unpack_from(buffer, end)[0] == masked_checksum(content) else None


def find_records(buffer: Buffer, start: int) -> RecordFrames:
    """Return the complete records from byte `start` to the first header that fails its checksum."""
    return _check_headers(buffer, *find_record_starts(buffer, start))


def _check_headers(buffer: Buffer, starts: Indices, end: int) -> RecordFrames:
    """Return the records at `starts` that precede the first header that fails its checksum.

    `starts` and `end` are what `find_record_starts` returns: the last record may be incomplete.
    """
    if not len(starts):
        return RecordFrames(starts, starts, end, is_corrupt=False, next_bytes=0)

    # A damaged length can be up to 2^64 - 1, which numpy's index type cannot hold.
    ends = np.append(starts[1:], min(end, np.iinfo(np.intp).max))
    lengths = ends - starts - FRAME_BYTES
    valid = _count_valid_headers(buffer, starts, lengths)
    if valid < len(starts):
        return RecordFrames(
            starts[:valid], lengths[:valid], int(starts[valid]), is_corrupt=True, next_bytes=0
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
    """Return the first `count` records; `count` is less than their number."""
    return RecordFrames(
        frames.starts[:count],
        frames.lengths[:count],
        int(frames.starts[count]),
        is_corrupt=False,
        next_bytes=0,
    )


def drop_corrupt_end(buffer: Buffer, frames: RecordFrames) -> RecordFrames:
    """Return the records without the last one, if the last one fails its checksum."""
    if (
        not len(frames.starts)
        or payload(buffer, int(frames.starts[-1]), int(frames.lengths[-1])) is not None
    ):
        return frames
    return replace(
        frames, starts=frames.starts[:-1], lengths=frames.lengths[:-1], end=int(frames.starts[-1])
    )


def find_joined_records(buffer: Buffer, bounds: list[int]) -> list[RecordFrames]:
    """Return the records of each of several files that are joined in one buffer.

    Each file gets what `find_records` returns for it alone; offsets are those in the buffer.

    Args:
        buffer: The files' bytes, one file after the other.
        bounds: For n files, n + 1 offsets: where each file begins, and where the last one ends.
    """
    joined = _check_headers(buffer[: bounds[-1]], *find_record_starts_in_files(buffer, bounds))

    # As long as a record ends where each file does, no file's bytes were read as part of another.
    ends = np.array(bounds[1:])
    # The number of records that begin before each end.
    stops = np.searchsorted(joined.starts, ends)
    is_aligned = (np.append(joined.starts, joined.end)[stops] == ends).tolist()

    files, start, all_aligned = [], 0, True
    for bound, end, stop, ends_here in zip(bounds, bounds[1:], stops.tolist(), is_aligned):
        all_aligned = all_aligned and ends_here
        if all_aligned:
            records = slice(start, stop)
            files.append(
                RecordFrames(
                    joined.starts[records],
                    joined.lengths[records],
                    end,
                    is_corrupt=False,
                    next_bytes=0,
                )
            )
            start = stop
        else:
            # A file that is cut or damaged: its neighbours' bytes must not complete its last
            # record.
            files.append(find_records(buffer[:end], bound))
    return files


def join(files: list[RecordFrames]) -> RecordFrames:
    """Return the records of several files in one buffer, in the order of `files`; at least one."""
    return RecordFrames(
        np.concatenate([frames.starts for frames in files]),
        np.concatenate([frames.lengths for frames in files]),
        files[-1].end,
        is_corrupt=False,
        next_bytes=0,
    )


def group_by_length(frames: RecordFrames, records: Indices) -> Iterator[RecordGroup]:
    """Yield the records with these indices, grouped by their payload's length, shortest first."""
    # numpy sorts 16-bit integers by radix, others by comparison:
    # https://numpy.org/doc/stable/reference/generated/numpy.sort.html
    keys = np.minimum(frames.lengths[records], _LONG_LENGTH).astype(np.uint16)
    # Stable: records of one length stay in file order.
    order = np.argsort(keys, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(group):
            yield RecordGroup(int(keys[group[0]]), records[group])


def _count_valid_headers(buffer: Buffer, starts: Indices, lengths: Indices) -> int:
    """Return how many records, from the first one, have a length that matches its checksum."""
    written = _view_at_every_byte(buffer, np.dtype("<u4"))[starts + LENGTH.size]
    expected = length_checksums(np.minimum(lengths, SHORT_LENGTHS - 1))
    long = np.flatnonzero(lengths >= SHORT_LENGTHS)
    expected[long] = [masked_checksum(LENGTH.pack(length)) for length in lengths[long].tolist()]
    invalid = np.flatnonzero(written != expected)
    return int(invalid[0]) if len(invalid) else len(starts)


def _view_at_every_byte(buffer: Buffer, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a view with one (overlapping) element of `dtype` per byte offset."""
    # Unaligned on purpose: a record can begin at any byte.
    return np.ndarray((len(buffer) - dtype.itemsize + 1,), dtype, buffer, strides=(1,))
