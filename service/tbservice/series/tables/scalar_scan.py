"""Queries for all points of scalar series: list the rows that contain them, then read in chunks.

Every function needs a snapshot (`Database.snapshot`), since one reads the rows that another listed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.db.arrays import Array, encode_array
from tbservice.db.cluster import citus
from tbservice.db.pipeline import fetch_binary
from tbservice.grouping import group_by_weight
from tbservice.series.tables import superseded_blocks
from tbservice.series.tables.scalar_blocks import OPEN, SEALED
from tbservice.series.tables.scalar_format import (
    EMPTY_POINTS,
    GROUP_POINTS_MAX,
    unpack,
    unpack_all,
    unpack_raw,
)
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange
from tbwire.digests import SCALAR_RECORD
from tbwire.points import ScalarPoints

_log = logging.getLogger(__name__)

WRITE_BUFFER: Final = -2
"""Pseudo level of a row of the write buffer (`scalar_tail`)."""

INLINE_BUFFER: Final = -3
"""Pseudo level of the inline buffer (`time_series.tail_end`), later than the write buffer."""

SUPERSEDED: Final = -4
"""Pseudo level of a block of superseded points (`superseded_blocks`)."""


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """A stored group of a series' points: a sealed or open block, or a part of its buffers.

    A buffer's first and last steps are not known (0). The inline buffer's `block_id` is the
    series' id.
    """

    series_id: int
    level: int
    block_id: int
    count: int
    first_step: int
    last_step: int


_RowKey = tuple[int, int, int]
"""Series id, level and block id."""


def list_scalar_rows(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> dict[int, list[ScalarRow]]:
    """Return the rows of each series without their points; series without points are missing.

    Order: sealed blocks by step, then open blocks, the write buffer and the inline buffer, each in
    order of arrival. Blocks that do not overlap `steps` are left out; buffers never are.
    """
    # LATERAL: one plan, for each series by its key. Before the first ANALYZE of a large upload,
    # others look through all rows of the experiment.
    rows = fetch_binary(
        db,
        f"""
            SELECT w.series_id, b.*
            FROM unnest(%(series_ids)s::bigint[]) AS w (series_id) CROSS JOIN LATERAL (
                SELECT level, block_id, count, first_step, last_step FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND level IN (-1, 0) AND last_step >= %(first)s AND first_step <= %(last)s
                OFFSET 0) AS b
            UNION ALL
            SELECT w.series_id, -2, t.block_id, t.count, 0, 0
            FROM unnest(%(series_ids)s::bigint[]) AS w (series_id) CROSS JOIN LATERAL (
                SELECT block_id, count FROM scalar_tail
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                OFFSET 0) AS t
            UNION ALL
            SELECT w.series_id, -3, w.series_id, s.bytes / %(record_bytes)s::integer, 0, 0
            FROM unnest(%(series_ids)s::bigint[]) AS w (series_id) CROSS JOIN LATERAL (
                SELECT length(tail_end) AS bytes FROM time_series
                WHERE experiment_id = {citus.ANY_EXPERIMENT.of(db)} AND series_id = w.series_id
                LIMIT 1) AS s
            WHERE s.bytes > 0
        """,  # noqa: S608 - a constant
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": steps.first,
            "last": steps.last,
            "record_bytes": SCALAR_RECORD.itemsize,
        },
    )
    rows_by_series: defaultdict[int, list[ScalarRow]] = defaultdict(list)
    for row in rows:
        rows_by_series[row[0]].append(ScalarRow(*row))
    for listed in rows_by_series.values():
        listed.sort(
            key=lambda row: (-row.level, row.first_step if row.level == SEALED else 0, row.block_id)
        )
    return rows_by_series


def list_superseded_rows(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> list[ScalarRow]:
    """Return the blocks of superseded points that overlap a range, without their points."""
    rows = superseded_blocks.list_in_range(db, experiment_id, series_ids, steps)
    return [ScalarRow(series_id, SUPERSEDED, *row) for series_id, *row in rows]


def read_scalar_rows(
    db: Connection,
    experiment_id: ExperimentId,
    rows: Iterable[ScalarRow],
    points_max: int,
    skip_damaged: bool,
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    """Read the rows' points and yield them in the same order.

    Args:
        db: The snapshot in which the rows were listed.
        experiment_id: The experiment of all rows.
        rows: Rows of any series.
        points_max: Points in memory at most, unless a single row has more.
        skip_damaged: Log a warning for a damaged row and yield it without points.

    Raises:
        ValueError: A row is damaged, unless `skip_damaged`.
    """
    # A single row over the limit is read all the same: its points are packed together.
    for group in group_by_weight(rows, lambda row: row.count, points_max):
        yield from _read_group(db, experiment_id, group, skip_damaged)


def _read_group(
    db: Connection, experiment_id: ExperimentId, group: Sequence[ScalarRow], skip_damaged: bool
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    data_by_key: dict[_RowKey, tuple[bool, bytes]] = {}
    for levels, read in (
        ({SEALED, OPEN}, _read_blocks),
        ({WRITE_BUFFER}, _read_write_buffer),
        ({INLINE_BUFFER}, _read_inline_buffers),
        ({SUPERSEDED}, _read_superseded),
    ):
        if rows := [row for row in group if row.level in levels]:
            data_by_key |= read(db, experiment_id, rows)
    for rows in group_by_weight(group, lambda row: row.count, GROUP_POINTS_MAX):
        # Popped: the bytes of a row are freed as soon as its points are unpacked.
        stored = [data_by_key.pop((row.series_id, row.level, row.block_id)) for row in rows]
        try:
            points = _unpack(stored)
        except ValueError:  # which of them?
            yield from _unpack_singly(rows, stored, skip_damaged)
        else:
            yield from zip(rows, points, strict=True)


def _unpack(stored: Sequence[tuple[bool, bytes]]) -> list[ScalarPoints]:
    """Return the points of rows, each packed or raw. Raises ValueError if any is damaged."""
    packed = iter(unpack_all([data for is_packed, data in stored if is_packed]))
    return [next(packed) if is_packed else unpack_raw(data) for is_packed, data in stored]


def _unpack_singly(
    rows: Sequence[ScalarRow], stored: Sequence[tuple[bool, bytes]], skip_damaged: bool
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    """Yield the points of each row; of one that is damaged as `read_scalar_rows` says."""
    for row, (is_packed, data) in zip(rows, stored, strict=True):
        try:
            yield row, unpack(data) if is_packed else unpack_raw(data)
        except ValueError as error:
            if not skip_damaged:
                raise
            _log.warning(
                "row %d of level %d of series %d: %s", row.block_id, row.level, row.series_id, error
            )
            yield row, EMPTY_POINTS


def _read_blocks(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[_RowKey, tuple[bool, bytes]]:
    blocks = fetch_binary(
        db,
        """
            SELECT w.series_id, w.level, w.block_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[], %(block_ids)s::bigint[])
                AS w (series_id, level, block_id) CROSS JOIN LATERAL (
                SELECT data FROM scalar_blocks
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND level = w.level AND block_id = w.block_id LIMIT 1) AS b
        """,
        {
            "experiment_id": experiment_id,
            "levels": encode_array("smallint", [row.level for row in rows]),
            **_row_keys(rows),
        },
    )
    return {tuple(key): (True, data) for *key, data in blocks}


def _read_write_buffer(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[_RowKey, tuple[bool, bytes]]:
    buffered = fetch_binary(
        db,
        """
            SELECT w.series_id, w.block_id, t.is_packed, t.data
            FROM unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[])
                AS w (series_id, block_id) CROSS JOIN LATERAL (
                SELECT is_packed, data FROM scalar_tail
                WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
                    AND block_id = w.block_id LIMIT 1) AS t
        """,
        {"experiment_id": experiment_id, **_row_keys(rows)},
    )
    return {
        (series_id, WRITE_BUFFER, block_id): (is_packed, data)
        for series_id, block_id, is_packed, data in buffered
    }


def _read_inline_buffers(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[_RowKey, tuple[bool, bytes]]:
    buffers = fetch_binary(
        db,
        f"""
            SELECT w.series_id, s.tail_end
            FROM unnest(%(series_ids)s::bigint[]) AS w (series_id) CROSS JOIN LATERAL (
                SELECT tail_end FROM time_series
                WHERE experiment_id = {citus.ANY_EXPERIMENT.of(db)} AND series_id = w.series_id
                LIMIT 1) AS s
        """,  # noqa: S608 - a constant
        {"experiment_id": experiment_id, "series_ids": [row.series_id for row in rows]},
    )
    return {(series_id, INLINE_BUFFER, series_id): (False, data) for series_id, data in buffers}


def _read_superseded(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[_RowKey, tuple[bool, bytes]]:
    keys = [(row.series_id, row.block_id) for row in rows]
    blocks = superseded_blocks.read_data(db, experiment_id, keys)
    return {
        (series_id, SUPERSEDED, block_id): (True, data)
        for (series_id, block_id), data in blocks.items()
    }


def _row_keys(rows: Sequence[ScalarRow]) -> dict[str, Array]:
    return {
        "series_ids": encode_array("bigint", [row.series_id for row in rows]),
        "block_ids": encode_array("bigint", [row.block_id for row in rows]),
    }
