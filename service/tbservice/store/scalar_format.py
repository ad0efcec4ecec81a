"""How scalar points become bytes: raw records for small tail rows, packed blocks (tbwire/packing.py) for all others.

Raw: 24 bytes a point (step int64, wall time float64, value float64; little-endian), so that rows concatenate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.types import Float64s, Int64s
from tbwire import packing

RECORD_DTYPE: Final = np.dtype([("step", "<i8"), ("wall_time", "<f8"), ("value", "<f8")])


@dataclass(frozen=True, slots=True)
class ScalarPoints:
    """Columns of scalar points, all of one length; `blocks` are the same points packed, where they came so."""

    steps: Int64s
    wall_times: Float64s
    values: Float64s
    blocks: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def select(
        self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_ | np.int64]] | slice
    ) -> ScalarPoints:
        """The points that a mask, indices or a slice choose."""
        return ScalarPoints(self.steps[chosen], self.wall_times[chosen], self.values[chosen])


EMPTY_POINTS: Final = ScalarPoints(
    np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64)
)


def concatenate(parts: list[ScalarPoints]) -> ScalarPoints:
    """All the parts' points, in the parts' order."""
    if len(parts) <= 1:
        return parts[0] if parts else EMPTY_POINTS
    return ScalarPoints(
        np.concatenate([part.steps for part in parts]),
        np.concatenate([part.wall_times for part in parts]),
        np.concatenate([part.values for part in parts]),
    )


def pack_raw(points: ScalarPoints) -> bytes:
    """The points as raw records."""
    records = np.empty(len(points), RECORD_DTYPE)
    records["step"], records["wall_time"], records["value"] = (
        points.steps,
        points.wall_times,
        points.values,
    )
    return records.tobytes()


def count_raw(data: bytes) -> int:
    """How many points the raw records are."""
    return len(data) // RECORD_DTYPE.itemsize


def unpack_raw(data: bytes) -> ScalarPoints:
    """The points of any number of raw rows, concatenated."""
    records = np.frombuffer(data, RECORD_DTYPE)
    return ScalarPoints(
        records["step"].copy(), records["wall_time"].copy(), records["value"].copy()
    )


def pack(points: ScalarPoints) -> bytes:
    """The points as one packed block; at least one point."""
    return packing.pack(points.steps, points.wall_times, points.values)


def unpack(data: bytes) -> ScalarPoints:
    """The points of a packed block. Raises ValueError for a block of another version, or one that is damaged."""
    return ScalarPoints(*packing.unpack(data))
