"""Encode columns of numbers as JSON, from numpy to bytes without a Python loop over points.

Numbers that are not finite are the strings that `tensorboard/backend/json_util.py` (Cleanse) makes.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

_NAN: Final = b'"NaN"'
_INFINITY: Final = b'"Infinity"'
_MINUS_INFINITY: Final = b'"-Infinity"'


def format_rows(pattern: bytes, *columns: npt.NDArray[Any]) -> bytes:
    """Return a JSON list with one `pattern` per row, its `%b`s replaced by the columns' numbers.

    Columns have equal lengths, and are as many as the `%b`s. Finite numbers keep all their bits;
    NaN and the infinities become the strings "NaN", "Infinity" and "-Infinity".
    """
    count, width = len(columns[0]), len(columns)
    cells: list[bytes] = [b""] * (count * width)
    for index, column in enumerate(columns):
        cells[index::width] = format_numbers(column)
    return b"[" + _repeat(pattern, count) % tuple(cells) + b"]"


def format_numbers(column: npt.NDArray[Any]) -> list[bytes]:
    """Return each integer or float of a column as JSON."""
    if not len(column):
        return []
    encoded = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)
    cells = encoded[1:-1].split(b",")
    if column.dtype.kind != "f" or bool(np.isfinite(column).all()):
        return cells
    # orjson writes null for NaN and the infinities; the page expects the strings.
    mixed = np.array(cells, np.object_)
    mixed[np.isnan(column)] = _NAN
    mixed[column == np.inf] = _INFINITY
    mixed[column == -np.inf] = _MINUS_INFINITY
    encoded_cells: list[bytes] = mixed.tolist()
    return encoded_cells


# Few distinct arguments: there are a few patterns, and most samples have the same length.
@functools.lru_cache(maxsize=32)
def _repeat(pattern: bytes, count: int) -> bytes:
    return b",".join([pattern] * count)
