"""Queries for all points of tensor and blob sequence series, streamed in step order.

Every function needs a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from tbservice.db.pipeline import get_driver_connection
from tbservice.samples import ObjectReference, TensorValue
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange

_FIRST_FETCH_ROWS: Final = 4
"""Rows of the first fetch: few, as each may have `TENSOR_BYTES_MAX` bytes."""

_FETCH_ROWS_MAX: Final = 2_000
_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Approximate bytes per fetch, estimated from the rows of the previous one."""


class TensorRow(NamedTuple):
    """A point of a tensor series."""

    series_id: int
    step: int
    wall_time: float
    dtype: int
    shape: list[int]
    data: bytes | None
    histogram: bytes | None
    object_sha256: bytes | None
    object_size: int | None

    @property
    def size(self) -> int:
        """Return the approximate bytes of the point, including those of its object."""
        return 200 + (self.object_size or len(self.data or b"")) + len(self.histogram or b"")


class BlobRow(NamedTuple):
    """A point of a blob sequence series: its blobs' SHA-256s, in order, and logged content type."""

    series_id: int
    step: int
    wall_time: float
    digests: list[bytes]
    logged_content_type: str

    @property
    def size(self) -> int:
        """Return the approximate bytes of the blobs' descriptions, without their content."""
        return 200 + 400 * len(self.digests) + len(self.logged_content_type.encode())


class TensorSampleRow(NamedTuple):
    """A point of a tensor series, with the position of its step in the sample order."""

    series_id: int
    rank: int
    sample_key: int
    step: int
    wall_time: float
    dtype: int
    shape: list[int]
    data: bytes | None
    histogram: bytes | None
    object_sha256: bytes | None
    object_size: int | None

    @property
    def size(self) -> int:
        """Return the approximate bytes of the point, including those of its object."""
        return 200 + (self.object_size or len(self.data or b"")) + len(self.histogram or b"")


class BlobSampleRow(NamedTuple):
    """A point of a blob sequence series, with the position of its step in the sample order."""

    series_id: int
    rank: int
    sample_key: int
    step: int
    wall_time: float
    digests: list[bytes]
    logged_content_type: str

    @property
    def size(self) -> int:
        """Return the approximate bytes of the blobs' descriptions, without their content."""
        return 200 + 400 * len(self.digests) + len(self.logged_content_type.encode())


_Row = TypeVar("_Row", TensorRow, BlobRow, TensorSampleRow, BlobSampleRow)


def make_tensor_value(row: TensorRow | TensorSampleRow) -> TensorValue:
    """Return a row's tensor; one stored as an object has a reference and no data yet."""
    if row.data is not None:
        return TensorValue(row.dtype, tuple(row.shape), row.data, row.histogram)
    reference = ObjectReference(row.object_sha256 or b"", row.object_size or 0)
    return TensorValue(row.dtype, tuple(row.shape), b"", row.histogram, reference)


def stream_tensors(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> Generator[TensorRow, None, None]:
    """Stream the points in a range of steps, by series in the order of `series_ids`, then step."""
    return _stream(db, TensorRow, "tensor_points", experiment_id, series_ids, steps)


def stream_blob_sequences(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> Generator[BlobRow, None, None]:
    """Stream the points in a range of steps, by series in the order of `series_ids`, then step."""
    return _stream(db, BlobRow, "blob_points", experiment_id, series_ids, steps)


def _stream(
    db: Connection,
    row_type: type[_Row],
    table: str,
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    steps: StepRange,
) -> Generator[_Row, None, None]:
    statement = f"""
        SELECT p.* FROM unnest(%(series_ids)s::bigint[]) WITH ORDINALITY AS w (wanted_id, ordinal)
        CROSS JOIN LATERAL (
            SELECT {", ".join(row_type._fields)} FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = w.wanted_id
                AND step BETWEEN %(first)s AND %(last)s
            -- OFFSET 0 keeps this a sub-query, read in the order of the index. A sort of all rows
            -- would write large ones to disk.
            ORDER BY step OFFSET 0
        ) AS p
        ORDER BY w.ordinal
    """  # noqa: S608 - a table and columns of ours
    parameters: dict[str, Any] = {"experiment_id": experiment_id, "series_ids": list(series_ids)}
    return stream_by_bytes(
        db, row_type, statement, {**parameters, "first": steps.first, "last": steps.last}
    )


def stream_by_bytes(
    db: Connection, row_type: type[_Row], statement: str, parameters: Mapping[str, Any]
) -> Generator[_Row, None, None]:
    """Execute a query with %(name)s parameters and fetch about `_FETCH_BYTES` of rows at a time."""
    # A named (server-side) cursor, in binary: as text, tensors have twice the size in hexadecimal.
    with get_driver_connection(db).cursor(row_type.__name__, binary=True) as cursor:
        cursor.execute(statement.encode(), parameters)
        count = _FIRST_FETCH_ROWS
        while fetched := cursor.fetchmany(count):
            rows = [row_type._make(row) for row in fetched]
            yield from rows
            count = min(
                _FETCH_ROWS_MAX, 1 + _FETCH_BYTES * len(rows) // sum(row.size for row in rows)
            )
