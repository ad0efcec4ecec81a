"""Points as Arrow record batches: one row per point, with run and tag in dictionary columns.

The columns of the values are in `values`, one module per data class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from tbservice.api.formats.series_metadata import METADATA_COLUMNS, series_metadata
from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.api.formats.values.dictionaries import (
    BYTES_DICTIONARY,
    DICTIONARY,
    dictionary_column,
)
from tbservice.reading.full_scan import SeriesChunk
from tbservice.samples import TensorSample
from tbwire.points import DataClass

BATCH_ROWS: Final = 262_144
"""Approximate number of rows in a batch: the last chunk in it may exceed this."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""Approximate size of the tensors, and of the metadata, in a batch."""

_POINT_COLUMNS: Final = [
    ("run", DICTIONARY),
    ("tag", DICTIONARY),
    ("step", pa.int64()),
    ("wall_time", pa.float64()),
]

_METADATA_TYPES: Final = (DICTIONARY, DICTIONARY, DICTIONARY, BYTES_DICTIONARY)
"""The types of METADATA_COLUMNS."""


def make_schema(data_class: DataClass, sampling: str, *, with_metadata: bool = False) -> pa.Schema:
    """Return the schema; its metadata has the sampling rule, as JSON under the key `tbhub`.

    With `with_metadata`, METADATA_COLUMNS follow the columns of the values.
    """
    metadata_columns = zip(METADATA_COLUMNS, _METADATA_TYPES, strict=True) if with_metadata else ()
    metadata = {"tbhub": json.dumps({"sampling": sampling})}
    return pa.schema(
        [
            pa.field(*column)
            for column in (
                *_POINT_COLUMNS,
                *VALUE_FORMATS[data_class].ARROW_COLUMNS,
                *metadata_columns,
            )
        ],
        metadata,
    )


def record_batches(
    chunks: Iterable[SeriesChunk], schema: pa.Schema, data_class: DataClass
) -> Iterator[pa.RecordBatch]:
    """Yield batches of many chunks each; chunks without points are skipped."""
    pending: list[SeriesChunk] = []
    rows = size = 0
    for chunk in chunks:
        if not len(chunk.sample.steps):
            continue

        pending.append(chunk)
        rows += len(chunk.sample.steps)
        if isinstance(chunk.sample, TensorSample):
            size += sum(len(value.data) for value in chunk.sample.tensors)
        if METADATA_COLUMNS[0] in schema.names:
            size += len(chunk.series.summary_metadata)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _record_batch(pending, schema, data_class)
            pending, rows, size = [], 0, 0
    if pending:
        yield _record_batch(pending, schema, data_class)


def _record_batch(
    chunks: Sequence[SeriesChunk], schema: pa.Schema, data_class: DataClass
) -> pa.RecordBatch:
    lengths = np.array([len(chunk.sample.steps) for chunk in chunks])
    columns = [
        dictionary_column([chunk.series.run for chunk in chunks], lengths),
        dictionary_column([chunk.series.tag for chunk in chunks], lengths),
        pa.array(np.concatenate([chunk.sample.steps for chunk in chunks])),
        pa.array(np.concatenate([chunk.sample.wall_times for chunk in chunks])),
    ]

    columns += VALUE_FORMATS[data_class].to_arrow([chunk.sample for chunk in chunks])
    if len(columns) < len(schema):
        metadata = zip(*(series_metadata(chunk.series) for chunk in chunks), strict=True)
        columns += [
            dictionary_column(values, lengths, type_)
            for values, type_ in zip(metadata, _METADATA_TYPES, strict=True)
        ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
