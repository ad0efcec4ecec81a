"""Queries over whole series for their digests: never more at once than a caller can hold, however long the series.

Every function wants a snapshot (`Database.snapshot`): what one of them lists, the next one reads.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.store.database import binary_rows
from tbservice.store.packing import EMPTY, Points, unpack, unpack_raw
from tbservice.store.scalar_blocks import OPEN, SEALED
from tbservice.types import ExperimentId

_log = logging.getLogger(__name__)

TAIL: Final = -2
"""Instead of a block's level: a row of the tail."""

_TENSOR_ROWS_A_FETCH: Final = 2_000
"""Rows of about 200 bytes: PostgreSQL hashes the tensors, their bytes stay there."""

_BLOB_ROWS_A_FETCH: Final = 200
"""Rows of at most 32 kB: a digest for each of at most 1,000 blobs."""


@dataclass(frozen=True, slots=True)
class ScalarRow:
    """Where some points of a series are: a block of level SEALED or OPEN, or a row of the TAIL, without its steps."""

    series_id: int
    level: int
    block_id: int
    count: int
    first_step: int
    last_step: int


@dataclass(frozen=True, slots=True)
class TensorRow:
    """A point of a tensor series, with SHA-256s in place of its bytes."""

    series_id: int
    step: int
    wall_time: float
    dtype: int
    shape: Sequence[int]
    data_sha256: bytes
    histogram_sha256: bytes | None


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A point of a blob sequence series: the SHA-256s of its blobs, in order."""

    series_id: int
    step: int
    wall_time: float
    digests: Sequence[bytes]


def list_scalar_rows(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], after: int | None
) -> dict[int, list[ScalarRow]]:
    """The rows that hold the series' points, without them: sealed blocks in step order, then others as they arrived.

    Of sealed blocks, only those with a step greater than `after`.
    """
    rows = db.execute(
        text("""
            SELECT series_id, level, block_id, count AS points, first_step, last_step FROM scalar_blocks
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND (level = -1 OR level = 0 AND (CAST(:after AS bigint) IS NULL OR last_step > :after))
            UNION ALL
            SELECT series_id, -2, block_id, count, 0, 0 FROM scalar_tail
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
        """),
        {"experiment_id": experiment_id, "series_ids": list(series_ids), "after": after},
    )
    found: defaultdict[int, list[ScalarRow]] = defaultdict(list)
    for row in rows:
        found[row.series_id].append(
            ScalarRow(row.series_id, row.level, row.block_id, row.points, row.first_step, row.last_step)
        )
    for parts in found.values():
        parts.sort(key=lambda row: (-row.level, row.first_step if row.level == SEALED else 0, row.block_id))
    return found


def read_scalar_rows(
    db: Connection, experiment_id: ExperimentId, rows: Iterable[ScalarRow], points_max: int
) -> Iterator[tuple[ScalarRow, Points]]:
    """The rows with their points, in the order given; about `points_max` points are held at once, or one row.

    A row whose bytes are damaged has no points: whoever compares digests then learns which are missing.
    """
    group: list[ScalarRow] = []
    size = 0
    for row in rows:
        if group and size + row.count > points_max:
            yield from _read_group(db, experiment_id, group)
            group, size = [], 0
        group.append(row)
        size += row.count
    if group:
        yield from _read_group(db, experiment_id, group)


def _read_group(
    db: Connection, experiment_id: ExperimentId, group: Sequence[ScalarRow]
) -> Iterator[tuple[ScalarRow, Points]]:
    blocks = [row for row in group if row.level in {SEALED, OPEN}]
    found = _read_blocks(db, experiment_id, blocks) if blocks else {}
    if len(blocks) < len(group):
        found |= _read_tail(db, experiment_id, [row for row in group if row.level == TAIL])
    for row in group:
        is_packed, data = found.pop((row.level, row.block_id))
        try:
            yield row, unpack(data) if is_packed else unpack_raw(data)
        except ValueError as error:
            _log.warning("row %d of level %d of series %d: %s", row.block_id, row.level, row.series_id, error)
            yield row, EMPTY


def _read_blocks(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[tuple[int, int], tuple[bool, bytes]]:
    found = binary_rows(
        db,
        """
            SELECT b.level, b.block_id, b.data
            FROM unnest(%(series_ids)s::bigint[], %(levels)s::smallint[], %(block_ids)s::bigint[])
                AS w (series_id, level, block_id)
            JOIN scalar_blocks AS b ON b.experiment_id = %(experiment_id)s AND b.series_id = w.series_id
                AND b.level = w.level AND b.block_id = w.block_id
        """,
        {"experiment_id": experiment_id, "levels": [row.level for row in rows], **_places(rows)},
    )
    return {(level, block_id): (True, data) for level, block_id, data in found}


def _read_tail(
    db: Connection, experiment_id: ExperimentId, rows: Sequence[ScalarRow]
) -> dict[tuple[int, int], tuple[bool, bytes]]:
    found = binary_rows(
        db,
        """
            SELECT t.block_id, t.is_packed, t.data
            FROM unnest(%(series_ids)s::bigint[], %(block_ids)s::bigint[]) AS w (series_id, block_id)
            JOIN scalar_tail AS t ON t.experiment_id = %(experiment_id)s AND t.series_id = w.series_id
                AND t.block_id = w.block_id
        """,
        {"experiment_id": experiment_id, **_places(rows)},
    )
    return {(TAIL, block_id): (is_packed, data) for block_id, is_packed, data in found}


def _places(rows: Sequence[ScalarRow]) -> dict[str, list[int]]:
    return {"series_ids": [row.series_id for row in rows], "block_ids": [row.block_id for row in rows]}


def stream_tensors(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], after: int | None, limit: int | None
) -> Iterator[list[TensorRow]]:
    """The series' points with a step greater than `after`, at most `limit`, in pieces: by series id, then by step."""
    rows = _stream(
        db,
        """
            SELECT series_id, step, wall_time, dtype, shape,
                sha256(data) AS data_sha256, sha256(histogram) AS histogram_sha256
            FROM (
                SELECT * FROM tensor_points
                WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                    AND (CAST(:after AS bigint) IS NULL OR step > :after)
                ORDER BY series_id, step LIMIT CAST(:limit AS bigint)
            ) AS p ORDER BY series_id, step
        """,
        {"experiment_id": experiment_id, "series_ids": list(series_ids), "after": after, "limit": limit},
        _TENSOR_ROWS_A_FETCH,
    )
    for part in rows:
        yield [
            TensorRow(
                row.series_id,
                row.step,
                row.wall_time,
                row.dtype,
                row.shape,
                bytes(row.data_sha256),
                None if row.histogram_sha256 is None else bytes(row.histogram_sha256),
            )
            for row in part
        ]


def stream_blob_sequences(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], after: int | None, limit: int | None
) -> Iterator[list[BlobRow]]:
    """The series' points with a step greater than `after`, at most `limit`, in pieces: by series id, then by step."""
    rows = _stream(
        db,
        """
            SELECT series_id, step, wall_time, digests FROM blob_points
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND (CAST(:after AS bigint) IS NULL OR step > :after)
            ORDER BY series_id, step LIMIT CAST(:limit AS bigint)
        """,
        {"experiment_id": experiment_id, "series_ids": list(series_ids), "after": after, "limit": limit},
        _BLOB_ROWS_A_FETCH,
    )
    for part in rows:
        yield [
            BlobRow(row.series_id, row.step, row.wall_time, [bytes(digest) for digest in row.digests]) for row in part
        ]


def _stream(db: Connection, statement: str, parameters: dict[str, Any], rows_a_fetch: int) -> Iterator[Sequence[Any]]:
    """The rows in lists, from a cursor in the server."""
    result = db.execution_options(stream_results=True, max_row_buffer=rows_a_fetch).execute(text(statement), parameters)
    with result:
        yield from result.partitions(rows_a_fetch)
