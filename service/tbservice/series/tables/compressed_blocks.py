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

import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tbservice.types.identifiers import Float64s, Int64s, UInt64s
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
_SAMPLE_LENGTH: Final = 512
"""Neighbours from the middle of a column that stand for all of it when entropies are estimated."""

_INCOMPRESSIBLE_BITS: Final = 7.5
"""Estimated bits of a byte from which a plane is stored as it is.

Random bytes have 7.59 ± 0.03 in such a sample, so zstd could save 1 to 2 % of a plane at most.
"""

_N_LOG_N: Final = np.array([0, *(n * math.log2(n) for n in range(1, _SAMPLE_LENGTH + 1))])
"""n log2(n) for each count of a symbol in a sample."""

_LEVEL: Final = 1
"""zstd finds no repetitions in noise: level 3 gains nothing, and takes half again as long."""

_PLANE_POINTS_MIN: Final = 1_024
"""Points from which each plane is a frame of zstd, with its own table of frequencies.

Of fewer points, the tables would take more bytes than they save.
"""

_POINTS_MIN: Final = 16
"""Points of the smallest compressed block: below, the header alone is larger than what is saved."""

_Unsigned = npt.NDArray[Any]
"""A column of uint32 or uint64, or a row of each block."""

_Planes = npt.NDArray[np.uint8]

Columns = tuple[Int64s, Float64s, Float64s]
"""Steps, wall times and values."""


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


def decompress(block: bytes) -> Columns:
    """Return steps, wall times and values of a compressed block.

    Raises ValueError if it is damaged, or if pyarrow was built without zstd.
    """
    return decompress_all([block])[0]


def decompress_all(blocks: Sequence[bytes]) -> list[Columns]:
    """Return the columns of each block; the memory of all remains while one of them is in use.

    Blocks of one shape are rows of a matrix: of 1,000 points, each takes a quarter of the time that
    it takes alone. Raises as `decompress` if any is damaged.
    """
    headers = [_read_header(block) for block in blocks]
    sizes = [header.size for header in headers]
    frames = b"".join([block[_HEADER.size :] for block in blocks])
    planes = _decompress_frames(frames, sum(sizes))
    by_shape: defaultdict[_Shape, list[int]] = defaultdict(list)
    for index, header in enumerate(headers):
        by_shape[header.shape].append(index)

    columns: list[Columns | None] = [None] * len(blocks)
    starts = list(accumulate(sizes, initial=0))
    for shape, indices in by_shape.items():
        if len(by_shape) == 1:
            rows = planes.reshape(len(blocks), -1)
        else:
            rows = np.stack([planes[starts[index] : starts[index + 1]] for index in indices])
        integers = np.array([headers[index].integers for index in indices], np.uint64)
        steps, wall_times, values = _decode(shape, rows, integers)
        for row, index in enumerate(indices):
            columns[index] = steps[row], wall_times[row], values[row]
    return cast("list[Columns]", columns)


class _Shape(NamedTuple):
    """Points, widths in bytes, clock and order: equal in blocks that are decoded together."""

    points: int
    step_width: int
    wall_width: int
    value_width: int
    clock: int
    order: int


class _Header(NamedTuple):
    """The header of a block; `integers` are first, low and unit of steps, and of wall times."""

    shape: _Shape
    integers: tuple[int, ...]

    @property
    def size(self) -> int:
        """Return the bytes of all planes."""
        points, step_width, wall_width, value_width = self.shape[:4]
        return (points - 1) * (step_width + wall_width) + points * value_width


def _read_header(block: bytes) -> _Header:
    if len(block) < _HEADER.size:
        raise ValueError("a compressed block is shorter than its header")
    (
        _version, step_width, wall_width, value_width, points,
        *integers, clock, order, _zero, checksum,
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
    shape = _Shape(points, step_width, wall_width, value_width, clock, order)
    return _Header(shape, tuple(integers))


def _decode(shape: _Shape, rows: _Planes, integers: UInt64s) -> Columns:
    """Return columns of blocks, a row for each, from the planes and the integers of each."""
    wall_at = (shape.points - 1) * shape.step_width
    values_at = wall_at + (shape.points - 1) * shape.wall_width
    steps = _sum_units(_join_planes(rows[:, :wall_at], shape.step_width), shape, integers[:, :3])
    wall_units = _join_planes(rows[:, wall_at:values_at], shape.wall_width)
    ticks = _sum_units(wall_units, shape, integers[:, 3:])
    is_bits = shape.clock == _BITS
    wall_times = ticks.view(np.float64) if is_bits else _convert_microseconds(ticks.view(np.int64))
    bits = _join_planes(rows[:, values_at:], shape.value_width)
    assert bits is not None  # noqa: S101 - the width of values is never 0
    values = _sum_differences(bits, shape.order).view(f"f{shape.value_width}")
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return steps.view(np.int64), wall_times, values.astype(np.float64)


def _sum_units(units: _Unsigned | None, shape: _Shape, integers: UInt64s) -> UInt64s:
    """Return the columns, a row for each, that `packing.pack_integers` packed."""
    low, unit = integers[:, 1:2], integers[:, 2:]
    bits = np.empty((len(integers), shape.points), np.uint64)
    bits[:, :1] = integers[:, :1]
    if units is None:
        bits[:, 1:] = low
    else:
        bits[:, 1:] = units
        if (unit != 1).any():
            bits[:, 1:] *= unit
        bits[:, 1:] += low
    # Modulo 2^64, which undoes the differences exactly.
    return np.cumsum(bits, axis=1, dtype=np.uint64)


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
        body: bytes = _codec().compress(np.concatenate(planes), asbytes=True)
    else:
        body = b"".join(_write_frames(planes, narrow.itemsize if order else 0))
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
    sample = _sample(bits)
    samples = [sample[_ORDER_MAX:]]
    for order in range(1, _ORDER_MAX + 1):
        sample = np.diff(sample)
        samples.append(_fold_signs(sample[_ORDER_MAX - order :]))
    planes = np.concatenate(samples).view(np.uint8).reshape(len(samples), -1, bits.itemsize)
    entropies = _estimate_entropies(planes.swapaxes(1, 2)).sum(axis=1)
    order = int(np.argmin(entropies))
    for _ in range(order):
        bits = np.diff(bits, prepend=bits.dtype.type(0))
    return order, _fold_signs(bits) if order else bits


def _sample(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    middle = max(0, (len(column) - _SAMPLE_LENGTH) // 2)
    return column[middle : middle + _SAMPLE_LENGTH]


def _sum_differences(differences: _Unsigned, order: int) -> _Unsigned:
    """Return the bits of values of which these are the differences of an order."""
    if not order:
        return differences
    bits = (differences >> 1) ^ (0 - (differences & 1))
    for _ in range(order):
        bits = np.cumsum(bits, axis=1, dtype=bits.dtype)
    return bits


def _fold_signs(differences: _Unsigned) -> _Unsigned:
    """Return 0, 1, 2, 3, 4 … for 0, -1, 1, -2, 2 …, so that small numbers have zeros above."""
    width = differences.itemsize
    signed = differences.view(f"i{width}")
    return ((signed << 1) ^ (signed >> (8 * width - 1))).view(differences.dtype)


def _estimate_entropies(planes: _Planes) -> Float64s:
    """Return the bits per byte that a code of each plane alone would take, at least.

    All at once: `planes` has them along its last axis, at most _SAMPLE_LENGTH bytes of each.
    """
    *shape, length = planes.shape
    count = math.prod(shape)
    symbols = planes.reshape(count, length) + 256 * np.arange(count)[:, None]
    counts = np.bincount(symbols.ravel(), minlength=256 * count)
    sums = _N_LOG_N[counts].reshape(*shape, 256).sum(axis=-1)
    entropies: Float64s = math.log2(length) - sums / length
    return entropies


def _split_into_planes(column: bytes, width: int) -> Iterator[npt.NDArray[np.uint8]]:
    if column:
        yield from np.ascontiguousarray(np.frombuffer(column, np.uint8).reshape(-1, width).T)


def _write_frames(planes: Sequence[_Planes], smooth: int) -> Iterator[bytes]:
    """Yield a frame of zstd for each plane.

    Noise is not given to the codec, which takes 10 µs or more to find that it can save nothing.
    The last `smooth` planes are: what looks like noise in a computed curve may be repeated by it.
    """
    entropies = _estimate_entropies(np.stack([_sample(plane) for plane in planes]))
    entropies[len(planes) - smooth :] = 0
    for plane, bits in zip(planes, entropies, strict=True):
        if bits < _INCOMPRESSIBLE_BITS:
            yield _codec().compress(plane, asbytes=True)
        else:
            yield _store(plane.tobytes())


def _store(plane: bytes) -> bytes:
    """Return a frame that has 256 to 65,791 bytes as they are: one raw block (RFC 8878, 3.1.1).

    The descriptor says that two bytes with the size less 256 follow, and that it is one segment.
    """
    block = len(plane) << 3 | 0b001  # raw, and the last one
    header = struct.pack("<IBHI", 0xFD2FB528, 0b0110_0000, len(plane) - 256, block)
    return header[:-1] + plane  # a block's header has three bytes


def _join_planes(rows: _Planes, width: int) -> _Unsigned | None:
    """Return the columns of these planes, a row for each; None for width 0."""
    if width <= 1:
        return rows if width else None
    points = rows.shape[1] // width
    columns = np.empty((len(rows), points, width), np.uint8)
    # One plane after the other: a copy of the transposed matrix takes three times as long.
    for index in range(width):
        columns[:, :, index] = rows[:, index * points : (index + 1) * points]
    return columns.view(f"<u{width}")[:, :, 0]


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
