"""Columns of numbers as JSON: from numpy to bytes without a Python loop over points."""

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
    """A JSON list with `pattern` for each row, the columns' numbers in place of its `%b`s; the columns are as long.

    Every number comes back bit for bit, but that NaN and the infinities are strings.
    """
    count, width = len(columns[0]), len(columns)
    cells: list[bytes] = [b""] * (count * width)
    for index, column in enumerate(columns):
        cells[index::width] = format_numbers(column)
    return b"[" + _repeat(pattern, count) % tuple(cells) + b"]"


def format_numbers(column: npt.NDArray[Any]) -> list[bytes]:
    """Each integer or float of a column as JSON."""
    if not len(column):
        return []
    cells = orjson.dumps(np.ascontiguousarray(column), option=orjson.OPT_SERIALIZE_NUMPY)[
        1:-1
    ].split(b",")
    if column.dtype.kind != "f" or bool(np.isfinite(column).all()):
        return cells
    mixed = np.array(cells, np.object_)  # orjson writes null for each of these
    mixed[np.isnan(column)] = _NAN
    mixed[column == np.inf] = _INFINITY
    mixed[column == -np.inf] = _MINUS_INFINITY
    written: list[bytes] = mixed.tolist()
    return written


@functools.lru_cache(
    maxsize=32
)  # a few patterns, and few lengths besides the one a sample mostly has
def _repeat(pattern: bytes, count: int) -> bytes:
    return b",".join([pattern] * count)
