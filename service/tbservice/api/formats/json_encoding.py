"""Samples and series as JSON, by run, tag and column.

JSON has no NaN and no infinities (RFC 8259, section 6): they are strings, spelled as in the JSON
mapping of protobuf ("ProtoJSON Format" in its documentation, float and double).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from fastapi import Response

from tbservice.types.identifiers import Json
from tbservice.types.sampling import Sampling, SamplingRule
from tbservice.types.series import Series
from tbwire.points import DataClass
from tbwire.tensorboard_pb2 import SummaryMetadata

_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def json_response(content: Any) -> Response:
    """Return a JSON response; the content may include numpy arrays of finite numbers."""
    return Response(
        orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json"
    )


def encode_shared(values: Mapping[str, Any]) -> dict[str, orjson.Fragment]:
    """Return the values as JSON; one object that several names have is encoded once."""
    encoded: dict[int, orjson.Fragment] = {}
    for value in values.values():
        if id(value) not in encoded:
            encoded[id(value)] = orjson.Fragment(orjson.dumps(value))
    return {name: encoded[id(value)] for name, value in values.items()}


def sampling_name(sampling: Sampling) -> str:
    """Return the name of the sampling rule in responses."""
    return (
        "last"
        if sampling.rule is SamplingRule.ALL and sampling.last is not None
        else sampling.rule.value
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


def encode_plain_numbers(values: Sequence[float]) -> list[Any]:
    """Return a list of Python numbers as JSON: strings for those that are not finite."""
    return [value if math.isfinite(value) else _NOT_FINITE[str(value)] for value in values]


def encode_numbers(values: npt.NDArray[Any]) -> Any:
    """Return a column that orjson can encode: an array if all numbers are finite, else a list."""
    if values.dtype.kind != "f" or bool(np.isfinite(values).all()):
        return np.ascontiguousarray(values) if len(values) > 1 else values.tolist()
    return encode_plain_numbers(values.tolist())
