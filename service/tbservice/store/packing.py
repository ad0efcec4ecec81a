"""How scalar points become bytes: raw records for small tail rows, packed columns for everything else.

Raw: 24 bytes a point (step int64, wall time float64, value float64; little-endian), so that rows concatenate. Packed:
a header, then three columns. Steps, and wall times as the integer bits of the float64, are differences minus their
minimum over their greatest common divisor, in 0, 1, 2, 4 or 8 bytes each; values are float32 when that is bit-exact.
Lossless: what goes in comes out, bit by bit.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.types import Float64s, Int64s, UInt64s

RAW: Final = np.dtype([("step", "<i8"), ("wall_time", "<f8"), ("value", "<f8")])

_HEADER: Final = struct.Struct("<BBBBIQQQQQQ")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Points:
    """Columns of scalar points, all of one length."""

    steps: Int64s
    wall_times: Float64s
    values: Float64s

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_ | np.int64]] | slice) -> Points:
        """The points that a mask, indices or a slice choose."""
        return Points(self.steps[chosen], self.wall_times[chosen], self.values[chosen])


EMPTY: Final = Points(np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64))


def concatenate(parts: list[Points]) -> Points:
    """All the parts' points, in the parts' order."""
    if len(parts) <= 1:
        return parts[0] if parts else EMPTY
    return Points(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.wall_times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def pack_raw(points: Points) -> bytes:
    """The points as raw records."""
    records = np.empty(len(points), RAW)
    records["step"], records["wall_time"], records["value"] = points.steps, points.wall_times, points.values
    return records.tobytes()


def unpack_raw(data: bytes) -> Points:
    """The points of any number of raw rows, concatenated."""
    records = np.frombuffer(data, RAW)
    return Points(records["step"].copy(), records["wall_time"].copy(), records["value"].copy())


def pack(points: Points) -> bytes:
    """The points as one packed block; at least one point."""
    step_width, step_low, step_unit, steps = _pack_integers(points.steps.view(np.uint64))
    wall_width, wall_low, wall_unit, wall_times = _pack_integers(points.wall_times.view(np.uint64))
    with np.errstate(over="ignore", invalid="ignore"):
        halves = points.values.astype(np.float32)
        fits = bool(np.array_equal(halves.astype(np.float64).view(np.uint64), points.values.view(np.uint64)))
    values = halves if fits else points.values
    header = _HEADER.pack(
        _VERSION, step_width, wall_width, values.itemsize, len(points),
        int(points.steps.view(np.uint64)[0]), step_low, step_unit,
        int(points.wall_times.view(np.uint64)[0]), wall_low, wall_unit,
    )  # fmt: skip
    return b"".join((header, steps, wall_times, values.tobytes()))


def unpack(data: bytes) -> Points:
    """The points of a packed block. Raises ValueError for a block of another version."""
    version, step_width, wall_width, value_width, count, *rest = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"a scalar block of format {version} was written by a newer tbhub")
    first_step, step_low, step_unit, first_wall, wall_low, wall_unit = rest
    at = _HEADER.size
    steps = _unpack_integers(data, at, count, step_width, first_step, step_low, step_unit)
    at += step_width * (count - 1)
    wall_times = _unpack_integers(data, at, count, wall_width, first_wall, wall_low, wall_unit)
    at += wall_width * (count - 1)
    values = np.frombuffer(data, "<f4" if value_width == 4 else "<f8", count, at)  # noqa: PLR2004 - bytes of a float32
    return Points(steps.view(np.int64), wall_times.view(np.float64), values.astype(np.float64))


def _pack_integers(bits: UInt64s) -> tuple[int, int, int, bytes]:
    """The width, least difference and unit that carry a column of 64-bit integers, and its packed differences."""
    differences = np.diff(bits)  # modulo 2^64, so that any column of integers comes back
    if not len(differences):
        return 0, 0, 1, b""
    low = differences.view(np.int64).min().view(np.uint64)
    differences -= low
    greatest = int(differences.max())
    if greatest == 0:
        return 0, int(low), 1, b""
    unit = int(np.gcd.reduce(differences))
    width = next(width for width in (1, 2, 4, 8) if greatest // unit < 1 << 8 * width)
    return width, int(low), unit, (differences // np.uint64(unit)).astype(f"<u{width}").tobytes()


def _unpack_integers(data: bytes, at: int, count: int, width: int, first: int, low: int, unit: int) -> UInt64s:
    bits = np.empty(count, np.uint64)
    bits[0] = first
    if width:
        bits[1:] = np.frombuffer(data, f"<u{width}", count - 1, at)
        bits[1:] *= np.uint64(unit)
        bits[1:] += np.uint64(low)
    else:
        bits[1:] = low
    return np.cumsum(bits, dtype=np.uint64)
