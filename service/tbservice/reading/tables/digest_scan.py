"""Queries for digests of tensor and blob sequence series: all points, streamed in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from tbservice.types.identifiers import ExperimentId

_TENSOR_ROWS_PER_FETCH: Final = 2_000
"""Rows of about 200 bytes: PostgreSQL hashes the tensors, so that their bytes are not sent."""

_BLOB_ROWS_PER_FETCH: Final = 200
"""Rows of at most 32 kB: a SHA-256 for each of at most 1,000 blobs."""


@dataclass(frozen=True, slots=True)
class TensorDigestRow:
    """A point of a tensor series, with the SHA-256s of its bytes."""

    series_id: int
    step: int
    wall_time: float
    dtype: int
    shape: Sequence[int]
    data_sha256: bytes
    histogram_sha256: bytes | None


@dataclass(frozen=True, slots=True)
class BlobDigestRow:
    """A point of a blob sequence series, with its blobs' SHA-256s in order."""

    series_id: int
    step: int
    wall_time: float
    digests: Sequence[bytes]
    logged_content_type: str


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
    rows = _stream(
        db,
        """
            SELECT series_id, step, wall_time, dtype, shape,
                coalesce(object_sha256, sha256(data)) AS data_sha256,
                sha256(histogram) AS histogram_sha256
            FROM (
                SELECT * FROM tensor_points
                WHERE experiment_id = :experiment_id
                    AND series_id = ANY (CAST(:series_ids AS bigint[]))
                    AND (CAST(:after AS bigint) IS NULL OR step > :after)
                ORDER BY series_id, step LIMIT CAST(:limit AS bigint)
            ) AS p ORDER BY series_id, step
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "after": after,
            "limit": limit,
        },
        _TENSOR_ROWS_PER_FETCH,
    )
    for chunk in rows:
        yield [
            TensorDigestRow(
                row.series_id,
                row.step,
                row.wall_time,
                row.dtype,
                row.shape,
                bytes(row.data_sha256),
                None if row.histogram_sha256 is None else bytes(row.histogram_sha256),
            )
            for row in chunk
        ]


def stream_blob_sequences(
    db: Connection,
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    after: int | None,
    limit: int | None,
) -> Iterator[list[BlobDigestRow]]:
    """Stream the points in chunks, by series id, then by step.

    Args:
        db: A transaction, open until the stream ends.
        experiment_id: The experiment of all series.
        series_ids: The series.
        after: Only points of greater steps; None for all.
        limit: Points at most, of all series together; None for all.
    """
    rows = _stream(
        db,
        """
            SELECT series_id, step, wall_time, digests, logged_content_type FROM blob_points
            WHERE experiment_id = :experiment_id AND series_id = ANY (CAST(:series_ids AS bigint[]))
                AND (CAST(:after AS bigint) IS NULL OR step > :after)
            ORDER BY series_id, step LIMIT CAST(:limit AS bigint)
        """,
        {
            "experiment_id": experiment_id,
            "series_ids": list(series_ids),
            "after": after,
            "limit": limit,
        },
        _BLOB_ROWS_PER_FETCH,
    )
    for chunk in rows:
        yield [
            BlobDigestRow(
                row.series_id,
                row.step,
                row.wall_time,
                [bytes(digest) for digest in row.digests],
                row.logged_content_type,
            )
            for row in chunk
        ]


def _stream(
    db: Connection, statement: str, parameters: dict[str, Any], rows_per_fetch: int
) -> Iterator[Sequence[Any]]:
    """Stream the rows in lists of up to `rows_per_fetch`, with a server-side cursor."""
    result = db.execution_options(stream_results=True, max_row_buffer=rows_per_fetch).execute(
        text(statement), parameters
    )
    with result:
        yield from result.partitions(rows_per_fetch)
