"""Scalars in each format: a column `value` of float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tbservice.api.formats import csv_fields
from tbservice.api.formats.json_encoding import encode_numbers
from tbservice.samples import ScalarSample
from tbservice.types.series import Blob
from tbwire import packing, read_pb2
from tbwire.points import column_bytes, set_columns

CSV_COLUMNS: Final = ("value",)
ARROW_COLUMNS: Final = (("value", pa.float64()),)

_PACKED_POINTS_MIN: Final = 32
"""Below this number of points, packing takes more bytes than plain arrays."""


def to_json(sample: ScalarSample) -> Any:
    """Return the values: numbers, or "NaN", "Infinity", "-Infinity"."""
    return encode_numbers(sample.values)


def to_csv(sample: ScalarSample) -> pa.Array:
    """Return the value of each point as its field of a line."""
    return csv_fields.format_numbers(sample.values)


def to_arrow(samples: Sequence[ScalarSample]) -> list[pa.Array]:
    """Return the columns of ARROW_COLUMNS, with the points of all samples."""
    return [pa.array(np.concatenate([sample.values for sample in samples]))]


def fill_part(part: read_pb2.Part, sample: ScalarSample, _blobs: Mapping[bytes, Blob]) -> None:
    """Set the points of a `Part`: packed blocks, or plain columns if they are few."""
    count = len(sample.steps)
    if count < _PACKED_POINTS_MIN:
        set_columns(part.scalars, sample)
        part.scalars.values64 = column_bytes(sample.values, "<f8")
        return

    steps, wall_times = np.ascontiguousarray(sample.steps), np.ascontiguousarray(sample.wall_times)
    values = np.ascontiguousarray(sample.values)
    for start in range(0, count, packing.BLOCK_POINTS_MAX):
        rows = slice(start, start + packing.BLOCK_POINTS_MAX)
        part.scalars.blocks.append(packing.pack(steps[rows], wall_times[rows], values[rows]))
