"""Points as Arrow record batches: one row per point, with run and tag in dictionary columns.

Scalars have a float64 `value`. Tensors have `dtype` and `shape`, and their elements in `data`
(bytes, little-endian and row-major) or, for strings, in `strings`; legacy histograms also have
their original fields in `histogram`. Blob sequences have `keys`, for `/api/v1/blobs/{key}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tbservice.reading.full_scan import SeriesChunk
from tbservice.types import BlobSequenceSample, ScalarSample, TensorSample, TensorValue
from tbwire import tensors
from tbwire.points import DataClass
from tbwire.wire_pb2 import LegacyHistogram

BATCH_ROWS: Final = 262_144
"""Approximate number of rows in a batch: the last chunk in it may exceed this."""

BATCH_BYTES: Final = 16 * 1024 * 1024
"""Approximate size of the tensors in a batch."""

_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_HISTOGRAM: Final = pa.struct(
    [
        *((name, pa.float64()) for name in ("min", "max", "num", "sum", "sum_squares")),
        *((name, pa.list_(pa.float64())) for name in ("limits", "counts")),
    ]
)
_POINT_COLUMNS: Final = [
    ("run", _DICTIONARY),
    ("tag", _DICTIONARY),
    ("step", pa.int64()),
    ("wall_time", pa.float64()),
]
_VALUE_COLUMNS: Final = {
    DataClass.SCALAR: [("value", pa.float64())],
    DataClass.TENSOR: [
        ("dtype", _DICTIONARY),
        ("shape", pa.list_(pa.int64())),
        ("data", pa.binary()),
        ("strings", pa.list_(pa.binary())),
        ("histogram", _HISTOGRAM),
    ],
    DataClass.BLOB_SEQUENCE: [("keys", pa.list_(pa.string()))],
}


def make_schema(data_class: DataClass, sampling: str) -> pa.Schema:
    """Return the schema; its metadata has the sampling rule, as JSON under the key `tbhub`."""
    metadata = {"tbhub": json.dumps({"sampling": sampling})}
    return pa.schema(
        [pa.field(*column) for column in (*_POINT_COLUMNS, *_VALUE_COLUMNS[data_class])], metadata
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
        _dictionary_column([chunk.series.run for chunk in chunks], lengths),
        _dictionary_column([chunk.series.tag for chunk in chunks], lengths),
        pa.array(np.concatenate([chunk.sample.steps for chunk in chunks])),
        pa.array(np.concatenate([chunk.sample.wall_times for chunk in chunks])),
    ]

    match data_class:
        case DataClass.SCALAR:
            values = [
                chunk.sample.values for chunk in chunks if isinstance(chunk.sample, ScalarSample)
            ]
            columns.append(pa.array(np.concatenate(values)))
        case DataClass.TENSOR:
            samples = [chunk.sample for chunk in chunks if isinstance(chunk.sample, TensorSample)]
            columns += _tensor_columns([value for sample in samples for value in sample.tensors])
        case DataClass.BLOB_SEQUENCE:
            sequences = [
                chunk.sample.sequences
                for chunk in chunks
                if isinstance(chunk.sample, BlobSequenceSample)
            ]
            keys = [list(keys) for sequence in sequences for keys in sequence]
            columns.append(pa.array(keys, pa.list_(pa.string())))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _dictionary_column(names: Sequence[str], lengths: np.ndarray[Any, Any]) -> pa.Array:
    """Return a dictionary column that repeats each name as often as `lengths` says."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    indices = np.repeat(np.array([codes[name] for name in names], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(list(codes), pa.string()))


def _tensor_columns(values: Sequence[TensorValue]) -> list[pa.Array]:
    is_text = [value.dtype == tensors.STRING for value in values]
    data = [None if text else value.data for value, text in zip(values, is_text, strict=True)]
    strings = [
        _strings(value) if text else None for value, text in zip(values, is_text, strict=True)
    ]

    return [
        _dictionary_column(
            [tensors.NAMES[value.dtype] for value in values], np.ones(len(values), np.int64)
        ),
        pa.array([list(value.shape) for value in values], pa.list_(pa.int64())),
        pa.array(data, pa.binary()),
        pa.array(strings, pa.list_(pa.binary())),
        pa.array([_histogram(value) for value in values], _HISTOGRAM),
    ]


def _strings(value: TensorValue) -> list[bytes]:
    return tensors.unpack_strings(value.data, tensors.element_count(value.shape))


def _histogram(value: TensorValue) -> dict[str, Any] | None:
    if value.histogram is None:
        return None
    message = LegacyHistogram.FromString(value.histogram)
    single = {name: getattr(message, name) for name in ("min", "max", "num", "sum", "sum_squares")}
    return single | {"limits": list(message.bucket_limit), "counts": list(message.bucket)}
