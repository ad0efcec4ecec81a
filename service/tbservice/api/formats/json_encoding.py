"""Samples and series as JSON, by run, tag and column.

JSON has no NaN and no infinities (RFC 8259, section 6): they are strings, spelled as in the JSON
mapping of protobuf ("ProtoJSON Format" in its documentation, float and double).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import Response

from tbservice.types import (
    BlobSequenceSample,
    Json,
    Sampling,
    SamplingRule,
    ScalarSample,
    Series,
    TensorSample,
    TensorValue,
)
from tbwire import tensors
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata
from tbwire.wire_pb2 import LegacyHistogram

Sample = TypeVar("Sample", ScalarSample, TensorSample, BlobSequenceSample)

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_response(content: Any) -> Response:
    """Return a JSON response; the content may include numpy arrays of finite numbers."""
    return Response(_dumps(content), media_type="application/json")


def _dumps(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def samples_response(
    samples: Mapping[str, Mapping[str, Sample]],
    sampling: Sampling,
    values_of: Callable[[Sample], Any],
) -> Response:
    """Return a JSON response with each sample (`sample_to_json`), by run and tag.

    Each sample is encoded by itself, so that other threads run in between: orjson holds Python's
    lock, 33 ms for 15 MB.
    """
    rule = sampling_name(sampling)
    runs = []
    for run, tags in samples.items():
        encoded = [
            orjson.dumps(tag) + b":" + _dumps(sample_to_json(sample, values_of(sample), rule))
            for tag, sample in tags.items()
        ]
        runs.append(orjson.dumps(run) + b":{" + b",".join(encoded) + b"}")
    return Response(b"{" + b",".join(runs) + b"}", media_type="application/json")


def sampling_name(sampling: Sampling) -> str:
    """Return the name of the sampling rule in responses."""
    return (
        "last"
        if sampling.rule is SamplingRule.ALL and sampling.last is not None
        else sampling.rule.value
    )


def scalar_values(sample: ScalarSample) -> Any:
    """Return the values of scalars: numbers, or "NaN", "Infinity", "-Infinity"."""
    return encode_numbers(sample.values)


def tensor_values(sample: TensorSample) -> Any:
    """Return the values of tensors: {dtype, shape, data}, and the fields of a legacy histogram."""
    return [_tensor(value) for value in sample.tensors]


def blob_sequence_values(sample: BlobSequenceSample) -> Any:
    """Return the values of blob sequences: lists of {key}, with `logged_content_type` if any."""
    rows = zip(sample.sequences, sample.logged_content_types, strict=True)
    return [[_blob(key, content_type) for key in keys] for keys, content_type in rows]


def sample_values(sample: ScalarSample | TensorSample | BlobSequenceSample) -> Any:
    """Return the values of a sample of any data class."""
    if isinstance(sample, ScalarSample):
        return scalar_values(sample)
    return (
        tensor_values(sample) if isinstance(sample, TensorSample) else blob_sequence_values(sample)
    )


def series_metadata(series: Series) -> Json:
    """Return the metadata of a series: all that is known without reading its points."""
    metadata = {
        "plugin": series.plugin,
        "data_class": series.data_class.label,
        "count": series.count,
        "max_step": series.last_step,
        "max_wall_time": series.max_wall_time,
        "summary_metadata": summary_metadata(series),
    }

    if series.data_class is DataClass.SCALAR:
        metadata["last_value"] = encode_numbers(np.array([series.last_value], np.float64))[0]
    if series.data_class is DataClass.BLOB_SEQUENCE:
        metadata["max_length"] = series.max_length
    return metadata


def summary_metadata(series: Series) -> Json:
    """Return the summary metadata of a series, with the plugin's content in base64."""
    metadata = SummaryMetadata.FromString(series.summary_metadata)
    return {
        "plugin": metadata.plugin_data.plugin_name,
        "display_name": metadata.display_name,
        "description": metadata.summary_description,
        "content": base64.b64encode(metadata.plugin_data.content).decode(),
    }


def sample_to_json(
    sample: ScalarSample | TensorSample | BlobSequenceSample, values: Any, rule: str
) -> Json:
    """Return a sample as columns, with the numbers of points kept and in total, and the rule."""
    return {
        "steps": np.ascontiguousarray(sample.steps),
        "wall_times": np.ascontiguousarray(sample.wall_times),
        "values": values,
        "kept": len(sample.steps),
        "total": sample.total,
        "sampling": rule,
    }


def _blob(key: str, logged_content_type: str) -> Json:
    return (
        {"key": key, "logged_content_type": logged_content_type}
        if logged_content_type
        else {"key": key}
    )


def _tensor(value: TensorValue) -> Json:
    fields: Json = {
        "dtype": tensors.NAMES[value.dtype],
        "shape": list(value.shape),
        **_tensor_data(value),
    }
    if value.histogram is not None:
        fields["histogram"] = _histogram(LegacyHistogram.FromString(value.histogram))
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


def _histogram(histogram: LegacyHistogram) -> Json:
    single = {
        name: getattr(histogram, name) for name in ("min", "max", "num", "sum", "sum_squares")
    }
    repeated = {"limits": histogram.bucket_limit, "counts": histogram.bucket}
    return {name: encode_numbers(np.array([number]))[0] for name, number in single.items()} | {
        name: encode_numbers(np.array(column, np.float64)) for name, column in repeated.items()
    }


def encode_plain_numbers(values: Sequence[float]) -> list[Any]:
    """Return a list of Python numbers as JSON: strings for those that are not finite."""
    return [value if math.isfinite(value) else _NOT_FINITE[str(value)] for value in values]


def encode_numbers(values: npt.NDArray[Any]) -> Any:
    """Return a column that orjson can encode: an array if all numbers are finite, else a list."""
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return np.ascontiguousarray(values) if len(values) > 1 else values.tolist()
    return encode_plain_numbers(values.tolist())
