"""Queries for digests of tensor and blob sequence series: all points, streamed in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from tbservice.db.pipeline import get_driver_connection
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


class BlobDigestRow(NamedTuple):
    """A point of a blob sequence series, with its blobs' SHA-256s in order."""

    series_id: int
    step: int
    wall_time: float
    digests: Sequence[bytes]
    logged_content_type: str


_TENSOR_COLUMNS: Final = """
    series_id, step, wall_time, dtype, shape, coalesce(object_sha256, sha256(data)),
    sha256(histogram)
"""
_Row = TypeVar("_Row", TensorDigestRow, BlobDigestRow)


def stream_tensors(
    db: Connection,
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    after: int | None,
    limit: int | None,
) -> Iterator[list[TensorDigestRow]]:
    """Stream the points in chunks, by series id, then by step.

    Args:
        db: A transaction, open until the stream ends.
        experiment_id: The experiment of all series.
        series_ids: The series.
        after: Only points of greater steps; None for all.
        limit: Points at most, of all series together; None for all.
    """
    selected = {
        "experiment_id": experiment_id,
        "series_ids": list(series_ids),
        "after": after,
        "limit": limit,
    }
    source = "tensor_points", _TENSOR_COLUMNS
    return _stream(db, TensorDigestRow, *source, selected, _TENSOR_ROWS_PER_FETCH)


def stream_blob_sequences(
    db: Connection,
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    after: int | None,
    limit: int | None,
) -> Iterator[list[BlobDigestRow]]:
    """Stream the points as `stream_tensors` does."""
    selected = {
        "experiment_id": experiment_id,
        "series_ids": list(series_ids),
        "after": after,
        "limit": limit,
    }
    source = "blob_points", ", ".join(BlobDigestRow._fields)
    return _stream(db, BlobDigestRow, *source, selected, _BLOB_ROWS_PER_FETCH)


def _stream(
    db: Connection,
    row_type: type[_Row],
    table: str,
    columns: str,
    selected: Mapping[str, Any],
    rows_per_fetch: int,
) -> Iterator[list[_Row]]:
    """Stream the rows in lists of up to `rows_per_fetch`, with a server-side cursor."""
    statement = f"""
        SELECT {columns} FROM (
            SELECT * FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = ANY (%(series_ids)s::bigint[])
                AND (%(after)s::bigint IS NULL OR step > %(after)s)
            ORDER BY series_id, step LIMIT %(limit)s::bigint
        ) AS p ORDER BY series_id, step
    """  # noqa: S608 - a table and columns of ours
    with get_driver_connection(db).cursor(row_type.__name__, binary=True) as cursor:
        cursor.execute(statement.encode(), selected)
        while rows := cursor.fetchmany(rows_per_fetch):
            yield [row_type._make(row) for row in rows]
