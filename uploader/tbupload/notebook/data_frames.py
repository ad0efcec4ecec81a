"""DataFrames of pandas or polars; both are optional dependencies, imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tbupload.errors import UsageError

Library = Literal["pandas", "polars"]

LIBRARIES: Final[tuple[Library, ...]] = ("pandas", "polars")


@dataclass(frozen=True)
class CategoryColumn:
    """A column of few distinct strings: `codes` has each row's index into `names`."""

    names: Sequence[str]
    codes: npt.NDArray[np.int32]


def load(library: Library | None = None) -> tuple[Library, Any]:
    """Return the library's name and module; by default pandas, or polars if that is not installed.

    Raises:
        ImportError: the library, or with None each of both, is not installed.
        UsageError: `library` is neither "pandas" nor "polars".
    """
    if library is not None and library not in LIBRARIES:
        raise UsageError(f"library={library!r}: it must be 'pandas' or 'polars'")

    candidates = LIBRARIES if library is None else (library,)
    for name in candidates:
        if importlib.util.find_spec(name) is not None:
            return name, importlib.import_module(name)

    names = " or ".join(candidates)
    raise ImportError(
        f"DataFrames need {names}, which is not installed: run "
        f"`{shlex.quote(sys.executable)} -m pip install {candidates[0]}`"
    )


@dataclass(frozen=True)
class NullableColumn:
    """Values of one type, which is float, str or bool; None for missing, which all may be."""

    values: Sequence[float | str | bool | None]
    type: type


def make(columns: Mapping[str, Any], library: Library | None = None) -> Any:
    """Return a DataFrame of arrays, lists, NullableColumns and CategoryColumns (categoricals)."""
    name, module = load(library)
    return _in_pandas(module, columns) if name == "pandas" else _in_polars(module, columns)


def _in_pandas(pandas: Any, columns: Mapping[str, Any]) -> Any:
    def column(content: Any) -> Any:
        if isinstance(content, CategoryColumn):
            return pandas.Categorical.from_codes(content.codes, categories=list(content.names))
        if isinstance(content, NullableColumn):
            return pandas.Series(content.values, dtype="float64" if content.type is float else None)
        return content

    return pandas.DataFrame(
        {name: column(content) for name, content in columns.items()}, copy=False
    )


def _in_polars(polars: Any, columns: Mapping[str, Any]) -> Any:
    types = {float: polars.Float64, str: polars.String, bool: polars.Boolean}

    def column(name: str, content: Any) -> Any:
        if isinstance(content, NullableColumn):
            return polars.Series(name, content.values, dtype=types[content.type])
        if isinstance(content, CategoryColumn):
            names = polars.Series(name, list(content.names), dtype=polars.Categorical)
            return names.gather(polars.Series(content.codes, dtype=polars.UInt32))
        if (
            isinstance(content, list)
            and content
            and content[0] is not None
            and not isinstance(content[0], (str, int, float))
        ):
            return polars.Series(name, content, dtype=polars.Object)
        return polars.Series(name, content)

    return polars.DataFrame([column(name, content) for name, content in columns.items()])


def pivot(frame: Any) -> Any:
    """Return a frame with one row per (run, step), sorted by both, and one column per tag.

    Missing values are null. Raise UsageError if a tag is named "run" or "step".
    """
    for name in ("run", "step"):
        if (frame["tag"] == name).any():
            raise UsageError(
                f"a tag has the name of the column {name!r}: select other tags, or use pivot=False"
            )
    if type(frame).__module__.partition(".")[0] == "polars":
        return frame.pivot(on="tag", index=["run", "step"], values="value").sort("run", "step")
    wide = frame.pivot(index=["run", "step"], columns="tag", values="value")
    # A categorical column index accepts no further column, so reset_index would fail.
    wide.columns = [str(tag) for tag in wide.columns]
    return wide.reset_index()
