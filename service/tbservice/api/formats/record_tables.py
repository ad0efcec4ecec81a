"""Tables of anything but points (runs, series, sessions, …) as Parquet, Arrow or CSV."""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tbservice.api.formats import MEDIA_TYPES, Format, coalesce, csv_fields
from tbservice.api.formats.columnar import write_arrow, write_parquet


class TableFormat(enum.StrEnum):
    """Values of the query parameter `format` of tables."""

    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"


_COLUMN_TYPES: Final = {str: pa.string(), float: pa.float64(), bool: pa.bool_()}
_BATCH_ROWS: Final = 10_000
"""Rows of a row group of a table that is in memory."""

TABLE_MEDIA_TYPES: Final = {format_: MEDIA_TYPES[Format(format_.value)] for format_ in TableFormat}


@dataclass(frozen=True, slots=True)
class RecordTable:
    """A table: its columns, and its rows in batches, which are made as they are read."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def make_table(types: Mapping[str, type], chunks: Iterator[Sequence[Sequence[Any]]]) -> RecordTable:
    """Return the table of columns of texts, floats and booleans, by name, from chunks of them."""
    schema = pa.schema([(name, _COLUMN_TYPES[each]) for name, each in types.items()])

    def encode(chunk: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        arrays = [pa.array(column, field.type) for field, column in zip(schema, chunk, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return RecordTable(schema, map(encode, chunks))


def make_table_of(columns: Mapping[str, pa.Array]) -> RecordTable:
    """Return the table of columns that are in memory."""
    table = pa.table(dict(columns))
    return RecordTable(table.schema, table.to_batches(_BATCH_ROWS))


def make_batch(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return a batch of these rows, each with a value or None per column."""
    columns: Iterable[tuple[Any, ...]] = zip(*rows, strict=True)
    values = list(columns) or [()] * len(schema)
    arrays = [
        pa.array(column, field.type.value_type).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(column, field.type)
        for field, column in zip(schema, values, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encode_table(target: TableFormat, table: RecordTable) -> Iterator[bytes]:
    """Yield a table in a format, in byte chunks of about RESPONSE_CHUNK_BYTES_MIN."""
    match target:
        case TableFormat.PARQUET:
            return coalesce(write_parquet(table.schema, table.batches))
        case TableFormat.ARROW:
            return coalesce(write_arrow(table.schema, table.batches))
        case TableFormat.CSV:
            return coalesce(_write_csv(table))


def _write_csv(table: RecordTable) -> Iterator[bytes]:
    """Yield a header and a line per row, in the dialect of `csv_format`.

    A missing value is nothing, an empty string `""`; bytes are base64, lists JSON.
    """
    yield (",".join(map(_quote, table.schema.names)) + "\n").encode()
    for batch in table.batches:
        if batch.num_rows:
            columns = [_csv_column(column) for column in batch.columns]
            yield ("\n".join(map(",".join, zip(*columns, strict=True))) + "\n").encode()


def _csv_column(column: pa.Array) -> list[str]:
    """Return the fields of a column."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        numbers = csv_fields.format_numbers(column.fill_null(0.0).to_numpy(zero_copy_only=False))
        texts: list[str] = pc.if_else(column.is_valid(), numbers, csv_fields.text("")).to_pylist()
        return texts
    return ["" if value is None else _csv_field(value) for value in column.to_pylist()]


def _csv_field(value: Any) -> str:
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return _quote(base64.b64encode(value).decode())
    if isinstance(value, list):
        return csv_fields.quote(csv_fields.json_field(value))
    return str(value)


def _quote(text: str) -> str:
    return csv_fields.quote(text) or '""'
