"""Tensors in each format.

CSV has `data` as JSON. Arrow has the elements in `data` (bytes, little-endian and row-major) or,
for strings, in `strings`. Legacy histograms also have their original fields in `histogram`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tbservice.api.formats import csv_fields
from tbservice.api.formats.json_encoding import encode_numbers
from tbservice.api.formats.values.dictionaries import DICTIONARY, dictionary_column
from tbservice.samples import TensorSample, TensorValue
from tbservice.types.identifiers import Json
from tbservice.types.series import Blob
from tbwire import read_pb2, tensors, wire_pb2
from tbwire.points import set_columns
from tbwire.wire_pb2 import LegacyHistogram

_HISTOGRAM: Final = pa.struct(
    [
        *((name, pa.float64()) for name in ("min", "max", "num", "sum", "sum_squares")),
        *((name, pa.list_(pa.float64())) for name in ("limits", "counts")),
    ]
)
CSV_COLUMNS: Final = ("dtype", "shape", "data", "encoding", "histogram")
ARROW_COLUMNS: Final = (
    ("dtype", DICTIONARY),
    ("shape", pa.list_(pa.int64())),
    ("data", pa.binary()),
    ("strings", pa.list_(pa.binary())),
    ("histogram", _HISTOGRAM),
)


def to_json(sample: TensorSample) -> list[Json]:
    """Return the values: {dtype, shape, data}, and the fields of a legacy histogram."""
    return [_tensor_json(value) for value in sample.tensors]


def to_csv(sample: TensorSample) -> pa.Array:
    """Return the fields of CSV_COLUMNS of each point, joined."""
    return pa.array(map(_join_csv_fields, to_json(sample)), pa.large_string())


def to_arrow(samples: Sequence[TensorSample]) -> list[pa.Array]:
    """Return the columns of ARROW_COLUMNS, with the points of all samples."""
    values = [value for sample in samples for value in sample.tensors]
    is_text = [value.dtype == tensors.STRING for value in values]
    data = [None if text else value.data for value, text in zip(values, is_text, strict=True)]
    strings = [
        _strings(value) if text else None for value, text in zip(values, is_text, strict=True)
    ]

    return [
        dictionary_column(
            [tensors.NAMES[value.dtype] for value in values], np.ones(len(values), np.int64)
        ),
        pa.array([list(value.shape) for value in values], pa.list_(pa.int64())),
        pa.array(data, pa.binary()),
        pa.array(strings, pa.list_(pa.binary())),
        pa.array([_histogram_struct(value) for value in values], _HISTOGRAM),
    ]


def fill_part(part: read_pb2.Part, sample: TensorSample, _blobs: Mapping[bytes, Blob]) -> None:
    """Set the points of a `Part`."""
    set_columns(part.tensors, sample)
    part.tensors.tensors.extend(_tensor_message(value) for value in sample.tensors)


def _tensor_json(value: TensorValue) -> Json:
    fields: Json = {
        "dtype": tensors.NAMES[value.dtype],
        "shape": list(value.shape),
        **_tensor_data(value),
    }
    if value.histogram is not None:
        fields["histogram"] = _histogram_json(LegacyHistogram.FromString(value.histogram))
    return fields


def _tensor_data(value: TensorValue) -> Json:
    """Return a tensor's elements in row-major order.

    Numbers, [real, imaginary] pairs, or text; strings that are not UTF-8 make all of them base64.
    """
    elements = tensors.to_numpy(value.dtype, value.shape, value.data).reshape(-1)
    if value.dtype == tensors.STRING:
        try:
            return {"data": [element.decode() for element in elements]}
        except UnicodeDecodeError:
            return {
                "data": [base64.b64encode(element).decode() for element in elements],
                "encoding": "base64",
            }

    if value.dtype == tensors.BFLOAT16:  # the upper half of a float32
        elements = (elements.astype(np.uint32) << 16).view(np.float32)
    if elements.dtype.kind == "c":
        pairs = zip(encode_numbers(elements.real), encode_numbers(elements.imag), strict=True)
        return {"data": [list(pair) for pair in pairs]}
    return {"data": encode_numbers(elements)}


def _histogram_json(histogram: LegacyHistogram) -> Json:
    single = {
        name: getattr(histogram, name) for name in ("min", "max", "num", "sum", "sum_squares")
    }
    repeated = {"limits": histogram.bucket_limit, "counts": histogram.bucket}
    return {name: encode_numbers(np.array([number]))[0] for name, number in single.items()} | {
        name: encode_numbers(np.array(column, np.float64)) for name, column in repeated.items()
    }


def _join_csv_fields(value: Json) -> str:
    histogram = csv_fields.json_field(value["histogram"]) if "histogram" in value else ""
    fields = (
        value["dtype"],
        csv_fields.json_field(value["shape"]),
        csv_fields.json_field(value["data"]),
        value.get("encoding", ""),
        histogram,
    )
    return ",".join(map(csv_fields.quote, fields))


def _strings(value: TensorValue) -> list[bytes]:
    return tensors.unpack_strings(value.data, tensors.element_count(value.shape))


def _histogram_struct(value: TensorValue) -> dict[str, Any] | None:
    if value.histogram is None:
        return None
    message = LegacyHistogram.FromString(value.histogram)
    single = {name: getattr(message, name) for name in ("min", "max", "num", "sum", "sum_squares")}
    return single | {"limits": list(message.bucket_limit), "counts": list(message.bucket)}


def _tensor_message(value: TensorValue) -> wire_pb2.Tensor:
    message = wire_pb2.Tensor(dtype=value.dtype, shape=value.shape, data=value.data)
    if value.histogram is not None:
        message.histogram.MergeFromString(value.histogram)
        message.histogram.SetInParent()  # sets presence when all fields are zero
    return message
