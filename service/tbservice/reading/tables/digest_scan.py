"""Queries for digests of tensor and blob sequence series: all points, streamed in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from tbservice.db.pipeline import get_driver_connection
from tbservice.series.tables.value_scan import BlobRow
from tbservice.types.identifiers import ExperimentId

_TENSOR_ROWS_PER_FETCH: Final = 2_000
"""Rows of about 200 bytes: PostgreSQL hashes the tensors, so that their bytes are not sent."""

_BLOB_ROWS_PER_FETCH: Final = 200
"""Rows of at most 32 kB: a SHA-256 for each of at most 1,000 blobs."""


class TensorDigestRow(NamedTuple):
    """A point of a tensor series, with the SHA-256s of its bytes."""

    series_id: int
    step: int
    wall_time: float
    dtype: int
    shape: Sequence[int]
    data_sha256: bytes
    histogram_sha256: bytes | None


_TENSOR_COLUMNS: Final = """
    series_id, step, wall_time, dtype, shape, coalesce(object_sha256, sha256(data)),
    sha256(histogram)
"""
_SOURCES: Final = {
    TensorDigestRow: ("tensor_points", _TENSOR_COLUMNS, _TENSOR_ROWS_PER_FETCH),
    BlobRow: ("blob_points", ", ".join(BlobRow._fields), _BLOB_ROWS_PER_FETCH),
}
"""Table, columns, and rows fetched at a time, of each type of rows."""

_Row = TypeVar("_Row", TensorDigestRow, BlobRow)


def stream(
    db: Connection,
    row_type: type[_Row],
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    after: int | None,
    limit: int | None,
) -> Iterator[list[_Row]]:
    """Stream the points in chunks, by series id, then by step.

    Args:
        db: A transaction, open until the stream ends.
        row_type: Type of the rows, of the data class of all series.
        experiment_id: The experiment of all series.
        series_ids: The series.
        after: Only points of greater steps; None for all.
        limit: Points at most, of all series together; None for all.
    """
    table, columns, rows_per_fetch = _SOURCES[row_type]
    statement = f"""
        SELECT {columns} FROM (
            SELECT * FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
                AND (%(after)s::bigint IS NULL OR step > %(after)s)
            ORDER BY series_id, step LIMIT %(limit)s::bigint
        ) AS p ORDER BY series_id, step
    """  # noqa: S608 - a table and columns of ours
    with get_driver_connection(db).cursor(row_type.__name__, binary=True) as cursor:
        cursor.execute(
            statement.encode(),
            {
                "experiment_id": experiment_id,
                "series_ids": list(series_ids),
                "after": after,
                "limit": limit,
            },
        )
        while rows := cursor.fetchmany(rows_per_fetch):
            yield [row_type._make(row) for row in rows]
