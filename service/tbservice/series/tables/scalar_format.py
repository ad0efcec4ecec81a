"""Formats of stored scalar points: raw records in the buffers, packed blocks everywhere else.

Raw: 24 bytes per point (step int64, wall time float64, value float64; little-endian), so that rows
can be concatenated. Packed: `tbwire/packing.py`, or compressed: `compressed_blocks.py`. The first
byte of a block is its format. All blocks that are stored are read by `unpack`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.db.connection import get_required_revision
from tbservice.db.schema_versions import COMPRESSED_BLOCKS
from tbservice.grouping import group_by_weight
from tbservice.series.tables import compressed_blocks
from tbwire import packing
from tbwire.digests import SCALAR_RECORD
from tbwire.points import ScalarPoints

_RECORD: Final = struct.Struct("<qdd")

GROUP_POINTS_MAX: Final = 16_384
"""Points of blocks that are decoded together.

A column of them is in a processor's cache, and below the size that malloc maps each time.
"""


@dataclass(frozen=True, slots=True)
class PackedScalarPoints(ScalarPoints):
    """Scalar points that were received packed: `blocks` are the same points."""

    blocks: tuple[bytes, ...]


EMPTY_POINTS: Final = ScalarPoints(
    np.empty(0, np.int64), np.empty(0, np.float64), np.empty(0, np.float64)
)


def concatenate(chunks: list[ScalarPoints]) -> ScalarPoints:
    """Return all points in the order of `chunks`. The result of several has no `blocks`."""
    if len(chunks) <= 1:
        return chunks[0] if chunks else EMPTY_POINTS
    return ScalarPoints(
        np.concatenate([chunk.steps for chunk in chunks]),
        np.concatenate([chunk.wall_times for chunk in chunks]),
        np.concatenate([chunk.values for chunk in chunks]),
    )


def pack_raw(points: ScalarPoints) -> bytes:
    """Return the points as raw records."""
    if len(points) == 1:  # as in a live flush: an array takes three times as long
        return _RECORD.pack(points.steps.item(0), points.wall_times.item(0), points.values.item(0))
    # Values are float64: `scalar_records`, which converts others too, takes twice as long.
    records = np.empty(len(points), SCALAR_RECORD)
    records["step"], records["wall_time"] = points.steps, points.wall_times
    records["value"] = points.values
    return records.tobytes()


def count_raw(data: bytes) -> int:
    """Return the number of points of raw records."""
    return len(data) // SCALAR_RECORD.itemsize


def unpack_raw(data: bytes) -> ScalarPoints:
    """Return the points of raw records: of one row, or of several concatenated."""
    records = np.frombuffer(data, SCALAR_RECORD)
    return ScalarPoints(
        # Copies: a column of a structured array is strided, and would keep the bytes of all three
        # alive.
        records["step"].copy(),
        records["wall_time"].copy(),
        records["value"].copy(),
    )


def pack(points: ScalarPoints) -> bytes:
    """Return at least one point as one packed block."""
    return packing.pack(points.steps, points.wall_times, points.values)


def compresses(db: Connection) -> bool:
    """Return whether blocks may be stored compressed: no server that cannot read them may start.

    See `schema_versions.COMPRESSED_BLOCKS`.
    """
    return (get_required_revision(db) or "") >= COMPRESSED_BLOCKS


def compress(points: ScalarPoints) -> bytes:
    """Return at least one point as one block that is compressed, unless packed is smaller."""
    return compressed_blocks.compress(points.steps, points.wall_times, points.values)


def is_compressed(data: bytes) -> bool:
    """Return whether a stored block is compressed."""
    return data[:1] == bytes((compressed_blocks.VERSION,))


def unpack(data: bytes) -> ScalarPoints:
    """Return the points of a stored block, packed or compressed.

    Raises ValueError for a damaged block, or one of a format that this version does not know.
    """
    if is_compressed(data):
        return ScalarPoints(*compressed_blocks.decompress(data))
    return ScalarPoints(*packing.unpack(data))


def unpack_all(blocks: Sequence[bytes]) -> list[ScalarPoints]:
    """Return the points of each stored block, decoded together; those of a group share memory.

    Raises as `unpack` if any is damaged.
    """
    points: list[ScalarPoints] = []
    for group in group_by_weight(blocks, _count, GROUP_POINTS_MAX):
        if all(map(is_compressed, group)):
            points += [
                ScalarPoints(*columns) for columns in compressed_blocks.decompress_all(group)
            ]
        else:
            points += map(unpack, group)
    return points


def _count(block: bytes) -> int:
    """Return how many points the header of a block names, of either format; not checked."""
    return int.from_bytes(block[4:8], "little")
