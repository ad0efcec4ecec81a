"""Compressed blocks of scalar points: packed block format 2, which only the store has.

The columns of a packed block (`tbwire/packing.py`) with two changes, as bytes of equal significance
(planes) that zstd compresses: all first bytes of a column, then all second bytes, and so on. Of a
noisy column, the upper planes compress and the lower ones do not. `docs/storage.md` has the layout.

- Wall times that are whole microseconds, as TensorFlow's, are integers of microseconds: a fourth of
  the values that the bits of the float64 have.
- The bits of values may be replaced by their differences, or by the differences of those, whichever
  have the least entropy: curves such as a learning rate are smooth, a loss is not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tbservice.types.identifiers import Float64s, Int64s
from tbwire import packing

VERSION: Final = 2
"""First byte of a compressed block; that of a packed block of the wire is 1."""

_HEADER: Final = struct.Struct("<BBBBIQQQQQQBBHI")
"""Fields of a packed block's header, up to the unit of wall times; then the number of the clock,
the order of the differences of values, zero, and the checksum.
"""

_CHECKED_HEADER_BYTES: Final = _HEADER.size - 4
_BITS, _MICROSECONDS = range(2)
"""Numbers of clocks: the bits of the float64, and whole microseconds since the epoch."""

_MICROSECONDS_PER_SECOND: Final = 1e6
_MICROSECONDS_MAX: Final = 2.0**53
"""Greater integers are not all float64."""

_CLOCK_SAMPLE_LENGTH: Final = 64
_ORDER_MAX: Final = 2
_ORDER_SAMPLE_LENGTH: Final = 512
"""Neighbours from the middle of a block by which the order of differences is chosen."""

_LEVEL: Final = 1
"""zstd finds no repetitions in noise: level 3 gains nothing, and takes half again as long."""

_PLANE_POINTS_MIN: Final = 1_024
"""Points from which each plane is a frame of zstd, with its own table of frequencies.

Of fewer points, the tables would take more bytes than they save.
"""

_POINTS_MIN: Final = 16
"""Points of the smallest compressed block: below, the header alone is larger than what is saved."""

_Unsigned = npt.NDArray[Any]
"""A column of uint32 or uint64."""


def compress(steps: Int64s, wall_times: Float64s, values: Float64s) -> bytes:
    """Return at least one point as a block: compressed, or packed (format 1) if that is smaller.

    Lossless as packing is: a signalling NaN of float32 is quiet once it is widened.
    """
    if len(steps) < _POINTS_MIN or not _has_zstd():
        return packing.pack(steps, wall_times, values)
    compressed = _compress(steps, wall_times, values)
    if len(steps) >= _PLANE_POINTS_MIN:  # never larger by more than its header and frames
        return compressed
    return min(packing.pack(steps, wall_times, values), compressed, key=len)


def decompress(block: bytes) -> tuple[Int64s, Float64s, Float64s]:
    """Return steps, wall times and values of a compressed block.

    Raises ValueError if it is damaged, or if pyarrow was built without zstd.
    """
    if len(block) < _HEADER.size:
        raise ValueError("a compressed block is shorter than its header")
    (
        _version, step_width, wall_width, value_width, points,
        first_step, step_low, step_unit, first_wall, wall_low, wall_unit,
        clock, order, _zero, checksum,
    ) = _HEADER.unpack_from(block)  # fmt: skip
    if _compute_checksum(block[:_CHECKED_HEADER_BYTES], block[_HEADER.size :]) != checksum:
        raise ValueError("a compressed block does not match its checksum (CRC-32C)")
    if (
        not 1 <= points <= packing.BLOCK_POINTS_MAX
        or not {step_width, wall_width} <= packing.WIDTHS
        or value_width not in packing.VALUE_WIDTHS
        or clock > _MICROSECONDS
        or order > _ORDER_MAX
    ):
        raise ValueError("a compressed block's header is invalid")

    wall_at = (points - 1) * step_width
    values_at = wall_at + (points - 1) * wall_width
    planes = _decompress_frames(block[_HEADER.size :], values_at + points * value_width)
    step_units = _join_planes(planes[:wall_at], step_width)
    steps = packing.unpack_integers(step_units, points, first_step, step_low, step_unit)
    wall_units = _join_planes(planes[wall_at:values_at], wall_width)
    ticks = packing.unpack_integers(wall_units, points, first_wall, wall_low, wall_unit)
    is_bits = clock == _BITS
    wall_times = ticks.view(np.float64) if is_bits else _convert_microseconds(ticks.view(np.int64))
    bits = _join_planes(planes[values_at:], value_width)
    assert bits is not None  # noqa: S101 - the width of values is never 0
    values = _sum_differences(bits, order).view(f"f{value_width}")
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return steps.view(np.int64), wall_times, values.astype(np.float64)


def _compress(steps: Int64s, wall_times: Float64s, values: Float64s) -> bytes:
    microseconds = _find_microseconds(wall_times)
    ticks = wall_times.view(np.uint64) if microseconds is None else microseconds.view(np.uint64)
    step_width, step_low, step_unit, step_units = packing.pack_integers(steps.view(np.uint64))
    wall_width, wall_low, wall_unit, wall_units = packing.pack_integers(ticks)
    narrow = packing.as_float32_if_exact(values)
    order, differences = _difference(narrow.view(f"u{narrow.itemsize}"))

    columns = (
        _split_into_planes(step_units, step_width),
        _split_into_planes(wall_units, wall_width),
        _split_into_planes(differences.tobytes(), narrow.itemsize),
    )
    planes = [plane for column in columns for plane in column]
    if len(steps) < _PLANE_POINTS_MIN:
        planes = [np.concatenate(planes)]
    body = b"".join(_codec().compress(plane, asbytes=True) for plane in planes)
    header = _HEADER.pack(
        VERSION, step_width, wall_width, narrow.itemsize, len(steps),
        int(steps.view(np.uint64)[0]), step_low, step_unit, int(ticks[0]), wall_low, wall_unit,
        _BITS if microseconds is None else _MICROSECONDS, order, 0, 0,
    )[:_CHECKED_HEADER_BYTES]  # fmt: skip
    return header + struct.pack("<I", _compute_checksum(header, body)) + body


def _find_microseconds(wall_times: Float64s) -> Int64s | None:
    """Return wall times as microseconds, if all of them are restored exactly; otherwise None."""
    for length in (_CLOCK_SAMPLE_LENGTH, len(wall_times)):
        seconds = wall_times[:length]
        # Beyond the years that microseconds of an int64 have, a conversion would be undefined.
        if not (np.abs(seconds) < _MICROSECONDS_MAX / _MICROSECONDS_PER_SECOND).all():
            return None
        ticks = np.rint(seconds * _MICROSECONDS_PER_SECOND).astype(np.int64)
        # By bits: 0.0 is equal to -0.0.
        restored = _convert_microseconds(ticks)
        if not np.array_equal(restored.view(np.uint64), seconds.view(np.uint64)):
            return None
    return ticks


def _convert_microseconds(ticks: Int64s) -> Float64s:
    """Return seconds: the division that TensorFlow's writer does, and not a product of 1e-6.

    https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/util/events_writer.cc
    """
    return ticks.astype(np.float64) / _MICROSECONDS_PER_SECOND


def _difference(bits: _Unsigned) -> tuple[int, _Unsigned]:
    """Return the bits of values, or their differences of the order with the least entropy."""
    middle = max(0, (len(bits) - _ORDER_SAMPLE_LENGTH) // 2)
    sample = bits[middle : middle + _ORDER_SAMPLE_LENGTH]
    entropies = []
    for order in range(_ORDER_MAX + 1):
        entropies.append(_estimate_entropy(_fold_signs(sample) if order else sample))
        sample = np.diff(sample)
    order = int(np.argmin(entropies))
    for _ in range(order):
        bits = np.diff(bits, prepend=bits.dtype.type(0))
    return order, _fold_signs(bits) if order else bits


def _sum_differences(differences: _Unsigned, order: int) -> _Unsigned:
    """Return the bits of values of which these are the differences of an order."""
    if not order:
        return differences
    bits = (differences >> 1) ^ (0 - (differences & 1))
    for _ in range(order):
        bits = np.cumsum(bits, dtype=bits.dtype)
    return bits


def _fold_signs(differences: _Unsigned) -> _Unsigned:
    """Return 0, 1, 2, 3, 4 … for 0, -1, 1, -2, 2 …, so that small numbers have zeros above."""
    width = differences.itemsize
    signed = differences.view(f"i{width}")
    return ((signed << 1) ^ (signed >> (8 * width - 1))).view(differences.dtype)


def _estimate_entropy(column: _Unsigned) -> float:
    """Return the bits per number that a code of each plane alone would take, at least."""
    width = column.itemsize
    symbols = column.view(np.uint8).reshape(-1, width) + 256 * np.arange(width)
    counts = np.bincount(symbols.ravel(), minlength=256 * width)
    counts = counts[counts > 0]
    return float(-(counts * np.log2(counts / len(column))).sum()) / len(column)


def _split_into_planes(column: bytes, width: int) -> Iterator[npt.NDArray[np.uint8]]:
    if column:
        yield from np.ascontiguousarray(np.frombuffer(column, np.uint8).reshape(-1, width).T)


def _join_planes(planes: npt.NDArray[np.uint8], width: int) -> _Unsigned | None:
    """Return the column of these planes; None for width 0."""
    if width <= 1:
        return planes if width else None
    column = np.empty((len(planes) // width, width), np.uint8)
    # One plane after the other: a copy of the transposed matrix takes three times as long.
    for index, plane in enumerate(planes.reshape(width, -1)):
        column[:, index] = plane
    return column.view(f"<u{width}").ravel()


def _decompress_frames(frames: bytes, size: int) -> npt.NDArray[np.uint8]:
    """Return the planes of all frames, `size` bytes.

    One call for all: a decoder of zstd continues with the next frame (RFC 8878, section 3.1).
    """
    if not _has_zstd():
        raise ValueError("a block is compressed with zstd, which this pyarrow was built without")
    try:
        # Bytes and not a buffer of pyarrow's pool, which takes a quarter longer.
        return np.frombuffer(_codec().decompress(frames, size, asbytes=True), np.uint8)
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"a compressed block cannot be decompressed: {error}") from error


def _compute_checksum(header: bytes, body: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(header), body))


def _has_zstd() -> bool:
    return bool(pa.Codec.is_available("zstd"))


@cache
def _codec() -> pa.Codec:
    return pa.Codec("zstd", compression_level=_LEVEL)
