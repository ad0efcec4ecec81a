"""Samples and series as JSON: run, then tag, then columns. Numbers that are not finite travel as strings."""

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
    DataClass,
    Json,
    Sampling,
    SamplingRule,
    ScalarSample,
    Series,
    TensorSample,
    TensorValue,
)
from tbwire import tensors
from tbwire.tensorboard_pb2 import SummaryMetadata
from tbwire.wire_pb2 import LegacyHistogram

Sample = TypeVar("Sample", ScalarSample, TensorSample, BlobSequenceSample)

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_response(content: Any) -> Response:
    """The answer with this content, which may hold numpy arrays of finite numbers."""
    return Response(
        orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json"
    )


def samples_to_json(
    samples: Mapping[str, Mapping[str, Sample]],
    sampling: Sampling,
    values_of: Callable[[Sample], Any],
) -> Json:
    """The same nesting with each sample as columns: steps, wall times and values, and how they were chosen."""
    rule = sampling_name(sampling)
    return {
        run: {tag: sample_to_json(sample, values_of(sample), rule) for tag, sample in tags.items()}
        for run, tags in samples.items()
    }


def sampling_name(sampling: Sampling) -> str:
    """What an answer calls the rule by which its points were chosen."""
    return (
        "last"
        if sampling.rule is SamplingRule.ALL and sampling.last is not None
        else sampling.rule.value
    )


def scalar_values(sample: ScalarSample) -> Any:
    """A scalar series' values: numbers, or "NaN", "Infinity", "-Infinity"."""
    return encode_numbers(sample.values)


def tensor_values(sample: TensorSample) -> Any:
    """A tensor series' values: {dtype, shape, data}, and the original fields of a legacy histogram."""
    return [_tensor(value) for value in sample.tensors]


def blob_sequence_values(sample: BlobSequenceSample) -> Any:
    """A blob sequence series' values: lists of {key}, with logged_content_type where one was logged."""
    rows = zip(sample.sequences, sample.logged_content_types, strict=True)
    return [[_blob(key, content_type) for key in keys] for keys, content_type in rows]


def sample_values(sample: ScalarSample | TensorSample | BlobSequenceSample) -> Any:
    """The values of a sample of any data class."""
    if isinstance(sample, ScalarSample):
        return scalar_values(sample)
    return (
        tensor_values(sample) if isinstance(sample, TensorSample) else blob_sequence_values(sample)
    )


def series_metadata(series: Series) -> Json:
    """What is known of a series without its points."""
    known = {
        "plugin": series.plugin,
        "data_class": series.data_class.name.lower(),
        "count": series.count,
        "max_step": series.last_step,
        "max_wall_time": series.max_wall_time,
        "summary_metadata": summary_metadata(series),
    }

    if series.data_class is DataClass.SCALAR:
        known["last_value"] = encode_numbers(np.array([series.last_value], np.float64))[0]
    if series.data_class is DataClass.BLOB_SEQUENCE:
        known["max_length"] = series.max_length
    return known


def summary_metadata(series: Series) -> Json:
    """A series' summary metadata; the plugin's own content is bytes, in base64."""
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
    """A sample as columns, and what was chosen of how many points by which rule."""
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
    answer: Json = {
        "dtype": tensors.NAMES[value.dtype],
        "shape": list(value.shape),
        **_tensor_data(value),
    }
    if value.histogram is not None:
        answer["histogram"] = _histogram(LegacyHistogram.FromString(value.histogram))
    return answer


def _tensor_data(value: TensorValue) -> Json:
    """A tensor's elements in row-major order: numbers, [real, imaginary] pairs, text, or base64 where it is no text."""
    elements = tensors.to_numpy(value.dtype, value.shape, value.data).reshape(-1)
    if value.dtype == tensors.STRING:
        try:
            return {"data": [element.decode() for element in elements]}
        except UnicodeDecodeError:
            return {
                "data": [base64.b64encode(element).decode() for element in elements],
                "encoding": "base64",
            }
    if value.dtype == tensors.BFLOAT16:
        elements = (elements.astype(np.uint32) << 16).view(np.float32)
    if elements.dtype.kind == "c":
        parts = zip(encode_numbers(elements.real), encode_numbers(elements.imag), strict=True)
        return {"data": [list(pair) for pair in parts]}
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
    """The same of a few plain numbers."""
    return [value if math.isfinite(value) else _NOT_FINITE[str(value)] for value in values]


def encode_numbers(values: npt.NDArray[Any]) -> Any:
    """A column that orjson can write: as it is when all are finite, else a list with strings for those that are not."""
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return np.ascontiguousarray(values) if len(values) > 1 else values.tolist()
    return encode_plain_numbers(values.tolist())
