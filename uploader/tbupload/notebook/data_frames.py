"""Columns as DataFrames of pandas or polars, which are loaded when they are used: neither is needed to install this."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tbupload.errors import UsageError

Library = Literal["pandas", "polars"]

LIBRARIES: Final[tuple[Library, ...]] = ("pandas", "polars")


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """A column of few names for many rows: each row's index into `names`."""

    names: Sequence[str]
    codes: npt.NDArray[np.int32]


def load(library: Library | None = None) -> tuple[Library, Any]:
    """The library's name and its module; pandas, else polars, when none is named.

    Raises ImportError when what is wanted is not installed, UsageError for another name.
    """
    if library is not None and library not in LIBRARIES:
        raise UsageError(f"library={library!r}: it is 'pandas' or 'polars'")
    wanted = LIBRARIES if library is None else (library,)
    for name in wanted:
        if importlib.util.find_spec(name) is not None:
            return name, importlib.import_module(name)
    names = " or ".join(wanted)
    raise ImportError(
        f"DataFrames need {names}, which is not installed: run `pip install {wanted[0]}`"
    )


def make(columns: Mapping[str, Any], library: Library | None = None) -> Any:
    """A DataFrame of these columns: arrays, lists, or Labels, which become categories."""
    name, module = load(library)
    return _in_pandas(module, columns) if name == "pandas" else _in_polars(module, columns)


def _in_pandas(pandas: Any, columns: Mapping[str, Any]) -> Any:
    def column(content: Any) -> Any:
        if isinstance(content, CategoryColumn):
            return pandas.Categorical.from_codes(content.codes, categories=list(content.names))
        return content

    return pandas.DataFrame(
        {name: column(content) for name, content in columns.items()}, copy=False
    )


def _in_polars(polars: Any, columns: Mapping[str, Any]) -> Any:
    def column(name: str, content: Any) -> Any:
        if isinstance(content, CategoryColumn):
            names = polars.Series(name, list(content.names), dtype=polars.Categorical)
            return names.gather(polars.Series(content.codes, dtype=polars.UInt32))
        if (
            isinstance(content, list)
            and content
            and not isinstance(content[0], str | int | float | None)
        ):
            return polars.Series(name, content, dtype=polars.Object)
        return polars.Series(name, content)

    return polars.DataFrame([column(name, content) for name, content in columns.items()])


def pivot(frame: Any) -> Any:
    """A frame of points as a row a run and step, by both, and a column a tag, with its values; absent ones are null.

    Raises UsageError when a tag has the name of one of the first two columns.
    """
    for name in ("run", "step"):
        if (frame["tag"] == name).any():
            raise UsageError(
                f"there is a tag {name!r} as well as a column: choose other tags, or take pivot=False"
            )
    if type(frame).__module__.partition(".")[0] == "polars":
        return frame.pivot(on="tag", index=["run", "step"], values="value").sort("run", "step")
    wide = frame.pivot(index=["run", "step"], columns="tag", values="value")
    wide.columns = [
        str(tag) for tag in wide.columns
    ]  # as categories they would take no other column beside them
    return wide.reset_index()
