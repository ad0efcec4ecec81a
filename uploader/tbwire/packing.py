"""Packed blocks of scalar points: sent by an uploader for a series with many points, and stored.

A header, then three columns, little-endian; `docs/wire.md` has the layout with an example. A column
of steps, or of wall times as the bits of the float64, has the differences of neighbours, minus the
smallest one, divided by their greatest common divisor, in 0, 1, 2, 4 or 8 bytes each. Values are
float32 when that is exact bit by bit. Packing is lossless, except that a signalling NaN of float32
is quiet once it is widened.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

BLOCK_POINTS_MAX: Final = 8_192
"""Points of one block."""

Steps = npt.NDArray[np.int64]
WallTimes = npt.NDArray[np.float64]
Values = npt.NDArray[np.float64]

_HEADER: Final = struct.Struct("<BBBBIQQQQQQ")
"""Version, widths of steps, wall times and values, and the number of points; then first, smallest
difference and unit of the steps, and the same of the wall times."""

_VERSION: Final = 1
WIDTHS: Final = frozenset({0, 1, 2, 4, 8})
"""Bytes of a difference of steps or wall times."""

VALUE_WIDTHS: Final = frozenset({4, 8})
"""Bytes of a value: float32 or float64."""

_GCD_SAMPLE_LENGTH: Final = 64
UInt64s = npt.NDArray[np.uint64]


def pack(steps: Steps, wall_times: WallTimes, values: npt.NDArray[Any]) -> bytes:
    """Return one block of these points, at least one; `values` are float32 or float64."""
    step_width, step_low, step_unit, packed_steps = pack_integers(steps.view(np.uint64))
    wall_width, wall_low, wall_unit, packed_wall_times = pack_integers(wall_times.view(np.uint64))
    narrow = as_float32_if_exact(values)
    header = _HEADER.pack(
        _VERSION, step_width, wall_width, narrow.itemsize, len(steps),
        int(steps.view(np.uint64)[0]), step_low, step_unit,
        int(wall_times.view(np.uint64)[0]), wall_low, wall_unit,
    )  # fmt: skip
    return b"".join((header, packed_steps, packed_wall_times, narrow.tobytes()))


def count(block: bytes) -> int:
    """Return the number of points in a block's header; ValueError when the header is invalid."""
    return int(_header(block)[4])


def unpack(block: bytes) -> tuple[Steps, WallTimes, Values]:
    """Return the columns of a block; ValueError when it is malformed or of another version."""
    _, step_width, wall_width, value_width, points, *rest = _header(block)
    first_step, step_low, step_unit, first_wall, wall_low, wall_unit = rest

    wall_at = _HEADER.size + step_width * (points - 1)
    values_at = wall_at + wall_width * (points - 1)
    if len(block) != values_at + value_width * points:
        raise ValueError("a packed block's length does not match its header")

    step_units = _read_units(block, _HEADER.size, points, step_width)
    steps = unpack_integers(step_units, points, first_step, step_low, step_unit)
    wall_units = _read_units(block, wall_at, points, wall_width)
    wall_times = unpack_integers(wall_units, points, first_wall, wall_low, wall_unit)
    values = np.frombuffer(block, f"<f{value_width}", points, values_at)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return steps.view(np.int64), wall_times.view(np.float64), values.astype(np.float64)


def _header(block: bytes) -> tuple[int, ...]:
    if len(block) < _HEADER.size:
        raise ValueError("a packed block is shorter than its header")
    header = _HEADER.unpack_from(block)
    version, step_width, wall_width, value_width, points = header[:5]
    if version != _VERSION:
        raise ValueError(f"a packed block has format {version}, which a newer tbhub made")
    if not {step_width, wall_width} <= WIDTHS or value_width not in VALUE_WIDTHS or not points:
        raise ValueError("a packed block's header is invalid")
    return header


def as_float32_if_exact(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values as float32 if that is lossless, otherwise unchanged."""
    if values.dtype == np.float32:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
        # By bits: NaN is not equal to itself, and 0.0 is equal to -0.0.
        fits = np.array_equal(narrow.astype(np.float64).view(np.uint64), values.view(np.uint64))
    return narrow if fits else values


def pack_integers(bits: UInt64s) -> tuple[int, int, int, bytes]:
    """Return width, smallest difference, unit and packed differences of a column of integers."""
    # Modulo 2^64, so that every column of 64-bit integers can be restored.
    # Of the bits of wall times, too: equal intervals have nearly equal differences of their bits
    # while the exponent of the float64 is the same.
    differences = np.diff(bits)
    if not len(differences):
        return 0, 0, 1, b""
    low = differences.view(np.int64).min().view(np.uint64)
    differences -= low
    greatest = int(differences.max())
    if greatest == 0:
        return 0, int(low), 1, b""

    unit = _common_unit(differences)
    width = min(width for width in WIDTHS if greatest // unit < 1 << 8 * width)
    # `np.uint64`, so that the type does not depend on numpy's rules for Python's integers:
    # https://numpy.org/neps/nep-0050-scalar-promotion.html
    units = differences if unit == 1 else differences // np.uint64(unit)
    return width, int(low), unit, units.astype(f"<u{width}").tobytes()


def unpack_integers(
    units: npt.NDArray[Any] | None, points: int, first: int, low: int, unit: int
) -> UInt64s:
    """Return the column that `pack_integers` packed; `units` is None for width 0."""
    bits = np.empty(points, np.uint64)
    bits[0] = first
    if units is not None:
        bits[1:] = units
        if unit != 1:
            bits[1:] *= np.uint64(unit)
        bits[1:] += np.uint64(low)
    else:
        bits[1:] = low
    # Modulo 2^64 as well, which undoes the differences exactly.
    return np.cumsum(bits, dtype=np.uint64)


def _read_units(block: bytes, at: int, points: int, width: int) -> npt.NDArray[Any] | None:
    return np.frombuffer(block, f"<u{width}", points - 1, at) if width else None


def _common_unit(differences: UInt64s) -> int:
    """Return the greatest common divisor; the first few are usually enough to know that it is 1."""
    unit = int(np.gcd.reduce(differences[:_GCD_SAMPLE_LENGTH]))
    return unit if unit == 1 else int(np.gcd.reduce(differences))
