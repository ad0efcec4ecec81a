"""Queries for points of tensor and blob sequence series: all of them in step order, or a sample.

Every function needs a snapshot (`Database.snapshot`).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection

from tbservice.db.pipeline import get_driver_connection
from tbservice.samples import ObjectReference, TensorValue
from tbservice.series.tables.points import SHOWN_TABLES
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import StepRange
from tbwire.points import DataClass

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
    def value(self) -> TensorValue:
        """Return the tensor; one stored as an object has a reference and no data yet."""
        if self.data is not None:
            return TensorValue(self.dtype, tuple(self.shape), self.data, self.histogram)
        reference = ObjectReference(self.object_sha256 or b"", self.object_size or 0)
        return TensorValue(self.dtype, tuple(self.shape), b"", self.histogram, reference)

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


ValueRow = TypeVar("ValueRow", TensorRow, BlobRow)

DATA_CLASSES: Final[Mapping[type, DataClass]] = {
    TensorRow: DataClass.TENSOR,
    BlobRow: DataClass.BLOB_SEQUENCE,
}
"""The data class of a type of rows."""

Ends = Mapping[int, Sequence[tuple[int, int]]]
"""Pairs (rank, sample key) by series id: positions in the sample order."""


def stream(
    db: Connection,
    row_type: type[ValueRow],
    experiment_id: ExperimentId,
    series_ids: Sequence[int],
    steps: StepRange,
) -> Generator[ValueRow, None, None]:
    """Stream the points in a range of steps, by series in the order of `series_ids`, then step."""
    table = SHOWN_TABLES[DATA_CLASSES[row_type]]
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


def sample(
    db: Connection, row_type: type[ValueRow], experiment_id: ExperimentId, k: int, ends: Ends
) -> Generator[ValueRow, None, None]:
    """Stream the first `k` points of each series in sample order, and those at its `ends`.

    Points are in no order, and may occur twice. A caller that stops early, since the points have
    too many bytes, closes the generator.

    Args:
        db: A transaction.
        row_type: Type of the rows, of the data class of all series.
        experiment_id: The experiment of all series.
        k: Points per series.
        ends: Its keys are the series to read.
    """
    table = SHOWN_TABLES[DATA_CLASSES[row_type]]
    statement = f"""
        SELECT p.* FROM unnest(%(series_ids)s::bigint[]) AS w (series_id)
        CROSS JOIN LATERAL (
            SELECT {", ".join(row_type._fields)} FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = w.series_id
            ORDER BY rank, sample_key LIMIT %(k)s
        ) AS p
        UNION ALL
        SELECT p.* FROM unnest(%(end_ids)s::bigint[], %(ranks)s::smallint[], %(keys)s::bigint[])
            AS e (series_id, rank, sample_key)
        CROSS JOIN LATERAL (
            SELECT {", ".join(row_type._fields)} FROM {table}
            WHERE experiment_id = %(experiment_id)s AND series_id = e.series_id
                AND rank = e.rank AND sample_key = e.sample_key LIMIT 1
        ) AS p
    """  # noqa: S608 - a table and columns of ours
    flat = [(series_id, rank, key) for series_id, keys in ends.items() for rank, key in keys]
    parameters = {
        "experiment_id": experiment_id,
        "k": k,
        "series_ids": list(ends),
        "end_ids": [series_id for series_id, _, _ in flat],
        "ranks": [rank for _, rank, _ in flat],
        "keys": [key for _, _, key in flat],
    }
    return stream_by_bytes(db, row_type, statement, parameters)


def stream_by_bytes(
    db: Connection, row_type: type[ValueRow], statement: str, parameters: Mapping[str, Any]
) -> Generator[ValueRow, None, None]:
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
