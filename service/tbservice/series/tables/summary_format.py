"""Summary of a scalar series: its least and greatest value, and how many values are not finite.

The last value is a column of its own. A summary is of the newest point of each step, as all reads
are. It is extended by what follows the last step; a batch that may replace points makes it unknown,
until it is computed from all points again: by compaction, or when it is read.
"""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple

import numpy as np

from tbwire.points import ScalarPoints

UNKNOWN: Final = b""
"""A stored summary that has to be computed."""

_LAYOUT: Final = struct.Struct(">qqqqdqd")

RECORD_DTYPE: Final = np.dtype(
    [
        ("rewrites", ">i8"),
        ("last_step", ">i8"),
        ("not_finite", ">i8"),
        ("min_step", ">i8"),
        ("min", ">f8"),
        ("max_step", ">i8"),
        ("max", ">f8"),
    ]
)
"""`_LAYOUT` for numpy: summaries of many series at once."""

NATIVE_DTYPE: Final = RECORD_DTYPE.newbyteorder("=")
"""RECORD_DTYPE in the byte order of the machine, to compute with."""


class Summary(NamedTuple):
    """A summary; `minimum` and `maximum` are of finite values, and NaN without any.

    Of equal values, the one with the lowest step counts.
    """

    not_finite: int = 0
    min_step: int = 0
    minimum: float = math.nan
    max_step: int = 0
    maximum: float = math.nan

    def extend(self, points: ScalarPoints) -> Summary:
        """Return the summary with further points, in step order and after all of before."""
        steps, values = points.steps, points.values
        not_finite = self.not_finite
        # Both find a NaN first, if there is one; so most blocks need no other look for it.
        low, high = int(values.argmin()), int(values.argmax())
        if not (math.isfinite(values[low]) and math.isfinite(values[high])):
            is_finite = np.isfinite(values)
            steps, values = steps[is_finite], values[is_finite]
            not_finite += len(is_finite) - len(values)
            if not len(values):
                return self._replace(not_finite=not_finite)
            low, high = int(values.argmin()), int(values.argmax())
        min_step, minimum, max_step, maximum = self[1:]
        # Negated, so that the first finite value replaces NaN.
        if not values[low] >= minimum:
            min_step, minimum = int(steps[low]), float(values[low])
        if not values[high] <= maximum:
            max_step, maximum = int(steps[high]), float(values[high])
        return Summary(not_finite, min_step, minimum, max_step, maximum)


EMPTY: Final = Summary()
"""The summary of a series without points."""


def pack(summary: Summary, rewrites: int, last_step: int) -> bytes:
    """Return the bytes to store, with those columns of the row that every batch changes."""
    return _LAYOUT.pack(rewrites, last_step, *summary)


def extend(data: bytes, rewrites: int, last_step: int, points: ScalarPoints) -> bytes:
    """Return the stored summary of a row with these columns, with the points that follow it.

    An unknown one remains unknown. `points` are in step order, at least one.
    """
    if len(data) != _LAYOUT.size:
        return UNKNOWN
    fields = _LAYOUT.unpack(data)
    if fields[0] != rewrites or fields[1] != last_step:
        return UNKNOWN
    if len(points.steps) > 1:
        return pack(Summary(*fields[2:]).extend(points), rewrites, int(points.steps[-1]))

    # A live flush has one point of each series: without numpy and objects, a third of the time.
    not_finite, min_step, minimum, max_step, maximum = fields[2:]
    step, value = points.steps.item(0), points.values.item(0)
    if not math.isfinite(value):
        not_finite += 1
    else:
        # Negated, so that the first finite value replaces NaN.
        if not value >= minimum:
            min_step, minimum = step, value
        if not value <= maximum:
            max_step, maximum = step, value
    return _LAYOUT.pack(rewrites, step, not_finite, min_step, minimum, max_step, maximum)


def unpack(data: bytes, rewrites: int, last_step: int) -> Summary | None:
    """Return the stored summary of a row with these columns; None if it is unknown."""
    if len(data) != _LAYOUT.size:
        return None
    fields = _LAYOUT.unpack(data)
    return Summary(*fields[2:]) if fields[:2] == (rewrites, last_step) else None
