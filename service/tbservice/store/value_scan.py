"""Queries for all points of tensor and blob sequence series in step order: a few are held at a time, however large.

Every function wants a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from sqlalchemy import Connection

from tbservice.types import ExperimentId, ObjectReference, StepRange, TensorValue

_FIRST_FETCH_ROWS: Final = 4
"""Few, as each may have `TENSOR_BYTES_MAX` bytes."""

_FETCH_ROWS_MAX: Final = 2_000
_FETCH_BYTES: Final = 4 * 1024 * 1024
"""About how much is fetched at a time: what came last tells how large rows are."""


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
        """Bytes, about, with those of an object."""
        return 200 + (self.object_size or len(self.data or b"")) + len(self.histogram or b"")


class BlobRow(NamedTuple):
    """A point of a blob sequence series: the SHA-256s of its blobs, in order, and what was logged with them."""

    series_id: int
    step: int
    wall_time: float
    digests: list[bytes]
    logged_content_type: str

    @property
    def size(self) -> int:
        """Bytes, about, of all that is to be known of these blobs."""
        return 200 + 400 * len(self.digests) + len(self.logged_content_type.encode())


class TensorSampleRow(NamedTuple):
    """A point of a tensor series, with its place in the order to sample by."""

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
        """Bytes, about, with those of an object."""
        return 200 + (self.object_size or len(self.data or b"")) + len(self.histogram or b"")


_Row = TypeVar("_Row", TensorRow, BlobRow, TensorSampleRow)


def make_tensor_value(row: TensorRow | TensorSampleRow) -> TensorValue:
    """Return the tensor of a row; the object of one that has no data is not looked up yet."""
    if row.data is not None:
        return TensorValue(row.dtype, tuple(row.shape), row.data, row.histogram)
    reference = ObjectReference(row.object_sha256 or b"", row.object_size or 0)
    return TensorValue(row.dtype, tuple(row.shape), b"", row.histogram, reference)


def stream_tensors(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> Generator[TensorRow, None, None]:
    """The points in this range, by series as given and then by step."""
    return _stream(db, TensorRow, "tensor_points", experiment_id, series_ids, steps)


def stream_blob_sequences(
    db: Connection, experiment_id: ExperimentId, series_ids: Sequence[int], steps: StepRange
) -> Generator[BlobRow, None, None]:
    """The points in this range, by series as given and then by step."""
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
        SELECT p.* FROM unnest(%(series_ids)s::bigint[]) WITH ORDINALITY AS w (wanted_id, place)
        CROSS JOIN LATERAL (
            SELECT {", ".join(row_type._fields)} FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = w.wanted_id AND step BETWEEN %(first)s AND %(last)s
            ORDER BY step OFFSET 0  -- read in the order of the index: sorted with others, large rows would go to disk
        ) AS p
        ORDER BY w.place
    """  # noqa: S608 - a table and columns of ours
    parameters: dict[str, Any] = {"experiment_id": experiment_id, "series_ids": list(series_ids)}
    return stream_by_bytes(
        db, row_type, statement, {**parameters, "first": steps.first, "last": steps.last}
    )


def stream_by_bytes(
    db: Connection, row_type: type[_Row], statement: str, parameters: Mapping[str, Any]
) -> Generator[_Row, None, None]:
    """Run a query with %(name)s parameters whose rows may be large, and fetch about `_FETCH_BYTES` at a time."""
    driver = db.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)  # noqa: S101 - the dialect is always psycopg's
    # A cursor of the server's, in binary: as text, every tensor would travel as hexadecimal digits.
    with driver.cursor(row_type.__name__, binary=True) as cursor:
        cursor.execute(statement.encode(), parameters)
        count = _FIRST_FETCH_ROWS
        while fetched := cursor.fetchmany(count):
            rows = [row_type._make(row) for row in fetched]
            yield from rows
            count = min(
                _FETCH_ROWS_MAX, 1 + _FETCH_BYTES * len(rows) // sum(row.size for row in rows)
            )
