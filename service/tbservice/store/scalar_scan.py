"""Queries over the rows that hold a scalar series: listed first, then read a few at a time, however many there are.

Every function wants a snapshot (`Database.snapshot`): what one of them lists, the next one reads.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text

from tbservice.store.pg.pipeline import fetch_binary
from tbservice.store.scalar_blocks import OPEN, SEALED
from tbservice.store.scalar_format import (
    EMPTY_POINTS,
    RECORD_DTYPE,
    ScalarPoints,
    unpack,
    unpack_raw,
)
from tbservice.types import ExperimentId, StepRange

_log = logging.getLogger(__name__)

WRITE_BUFFER: Final = -2
"""Instead of a block's level: a row of the tail."""

INLINE_BUFFER: Final = -3
"""Instead of a block's level: the end of the tail, which is newer than its rows and stands in the series' own row."""


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """Where some points of a series are: a block of level SEALED or OPEN, or a part of the tail, without its steps.

    A part of the tail is a row of the WRITE_BUFFER or the INLINE_BUFFER, whose `block_id` is the series' id.
    """

    series_id: int
    level: int
    block_id: int
    count: int
    first_step: int
    last_step: int


def list_scalar_rows(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> dict[int, list[ScalarRow]]:
    """The rows that hold the series' points, without them: sealed blocks in step order, then others as they arrived.

    Of blocks, only those that may hold one of these steps.
    """
    rows = db.execute(
        text("""
            SELECT series_id, level, block_id, count AS points, first_step, last_step
            FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND level IN (-1, 0) AND last_step >= :first AND first_step <= :last
            UNION ALL
            SELECT series_id, -2, block_id, count, 0, 0 FROM scalar_tail
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
            UNION ALL
            SELECT series_id, -3, series_id, length(tail_end) / :record_bytes, 0, 0 FROM time_series
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND tail_end <> ''
        """),
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "first": steps.first,
            "last": steps.last,
            "record_bytes": RECORD_DTYPE.itemsize,
        },
    )
    found: defaultdict[int, list[ScalarRow]] = defaultdict(list)
    for row in rows:
        found[row.series_id].append(
            ScalarRow(
                row.series_id, row.level, row.block_id, row.points, row.first_step, row.last_step
            )
        )
    for parts in found.values():
        parts.sort(
            key=lambda row: (-row.level, row.first_step if row.level == SEALED else 0, row.block_id)
        )
    return found


def read_scalar_rows(
    db: Connection,
    experiment_id: ExperimentId,
    rows: Iterable[ScalarRow],
    points_max: int,
    skip_damaged: bool,
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    """The rows with their points, in the order given; about `points_max` points are held at once, or one row.

    A row whose bytes are damaged is a ValueError; or it has no points, and a warning is logged.
    """
    group: list[ScalarRow] = []
    size = 0
    for row in rows:
        if group and size + row.count > points_max:
            yield from _read_group(db, experiment_id, group, skip_damaged)
            group, size = [], 0
        group.append(row)
        size += row.count
    if group:
        yield from _read_group(db, experiment_id, group, skip_damaged)


def _read_group(
    db: Connection, experiment_id: ExperimentId, group: Sequence[ScalarRow], skip_damaged: bool
) -> Iterator[tuple[ScalarRow, ScalarPoints]]:
    found: dict[tuple[int, int], tuple[bool, bytes]] = {}
    for levels, read in (
        ({SEALED, OPEN}, _read_blocks),
        ({WRITE_BUFFER}, _read_write_buffer),
        ({INLINE_BUFFER}, _read_inline_buffers),
    ):
        if rows := [row for row in group if row.level in levels]:
            found |= read(db, experiment_id, rows)
    for row in group:
        is_packed, data = found.pop((row.level, row.block_id))
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
) -> dict[tuple[int, int], tuple[bool, bytes]]:
    found = fetch_binary(
        db,
        """
            SELECT b.level, b.block_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[], %(block_ids)s::bigint[])
                AS w (series_id, level, block_id)
            JOIN scalar_blocks AS b ON b.experiment_id = %(experiment_id)s
                AND b.series_id = w.series_id
                AND b.level = w.level AND b.block_id = w.block_id
        """,
        {"experiment_id": experiment_id, "levels": [row.level for row in rows], **_row_keys(rows)},
    )
    return {(level, block_id): (True, data) for level, block_id, data in found}


def _read_write_buffer(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[tuple[int, int], tuple[bool, bytes]]:
    found = fetch_binary(
        db,
        """
            SELECT t.block_id, t.is_packed, t.data
            FROM unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[]) AS w (series_id,
                block_id)
            JOIN scalar_tail AS t ON t.experiment_id = %(experiment_id)s
                AND t.series_id = w.series_id
                AND t.block_id = w.block_id
        """,
        {"experiment_id": experiment_id, **_row_keys(rows)},
    )
    return {(WRITE_BUFFER, block_id): (is_packed, data) for block_id, is_packed, data in found}


def _read_inline_buffers(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[tuple[int, int], tuple[bool, bytes]]:
    found = fetch_binary(
        db,
        """
            SELECT series_id, tail_end FROM time_series
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
        """,
        {"experiment_id": experiment_id, "series_ids": [row.series_id for row in rows]},
    )
    return {(INLINE_BUFFER, series_id): (False, data) for series_id, data in found}


def _row_keys(rows: Sequence[ScalarRow]) -> dict[str, list[int]]:
    return {
        "series_ids": [row.series_id for row in rows],
        "block_ids": [row.block_id for row in rows],
    }
