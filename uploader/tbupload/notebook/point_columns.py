"""Points as columns of a DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbupload.events.points import Tensor
from tbupload.export.remote_series import SeriesPart
from tbupload.notebook.data_frames import CategoryColumn
from tbwire import tensors


def point_columns(parts: Sequence[SeriesPart]) -> dict[str, Any]:
    """Return the columns that all data classes have: run, tag, step, wall_time."""
    lengths = [len(part.columns.steps) for part in parts]
    return {
        "run": _labels([part.series.run for part in parts], lengths),
        "tag": _labels([part.series.tag for part in parts], lengths),
        "step": _join_columns([part.columns.steps for part in parts], np.int64),
        "wall_time": _join_columns([part.columns.wall_times for part in parts], np.float64),
    }


def _join_columns(columns: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(columns) if columns else np.empty(0, dtype)


def _labels(names: Sequence[str], lengths: Sequence[int]) -> CategoryColumn:
    codes = {name: code for code, name in enumerate(dict.fromkeys(names))}
    return CategoryColumn(
        list(codes), np.repeat(np.array([codes[name] for name in names], np.int32), lengths)
    )


def take_rows(column: Any, rows: Any) -> Any:
    """Return a column with these rows; names are not copied."""
    return (
        CategoryColumn(column.names, column.codes[rows])
        if isinstance(column, CategoryColumn)
        else column[rows]
    )


def to_array(tensor: Tensor) -> Any:
    """Return a numpy array; UTF-8 strings become str, and bfloat16 becomes float32."""
    array = tensors.to_numpy(tensor.dtype, tensor.shape, tensor.data)
    if tensor.dtype == tensors.BFLOAT16:
        # bfloat16 is the upper half of a float32.
        return (array.astype(np.uint32) << 16).view(np.float32)
    if tensor.dtype != tensors.STRING:
        return array
    try:
        return np.array([text.decode() for text in array.reshape(-1)], object).reshape(array.shape)
    except UnicodeDecodeError:
        return array
