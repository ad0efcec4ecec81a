"""Fields of comma-separated values: numbers, JSON and quoted text."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

_NOT_FINITE: Final = {np.inf: "Infinity", -np.inf: "-Infinity"}


def text(content: str) -> pa.Scalar:
    """Return a string as an Arrow scalar of the type of all columns."""
    return pa.scalar(content, pa.large_string())


def format_numbers(values: npt.NDArray[Any]) -> pa.Array:
    """Return each number as the shortest decimal that parses to the same float64."""
    texts = pa.array(values).cast(pa.large_string())
    if bool(np.isfinite(values).all()):
        return texts
    for number, word in _NOT_FINITE.items():
        texts = pc.if_else(pa.array(values == number), text(word), texts)
    return pc.if_else(pa.array(np.isnan(values)), text("NaN"), texts)


def json_field(content: object) -> str:
    """Return a value as JSON, to be quoted; it may contain numpy arrays of finite numbers."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY).decode()


def quote(field: str) -> str:
    """Return the text as a CSV field; quoted also around spaces, which some readers strip."""
    if not any(character in field for character in ',"\r\n') and field == field.strip():
        return field
    return '"' + field.replace('"', '""') + '"'
