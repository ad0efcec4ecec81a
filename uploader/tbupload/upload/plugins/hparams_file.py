"""The file of `--hparams`: hyperparameters for runs whose training scripts log none."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final, Union

from tbupload.errors import UsageError
from tbupload.events.filters import SeriesFilter

HPARAMS_FILE_BYTES_MAX: Final = 64 << 20
"""Bytes of a file of hyperparameters (`--hparams`)."""

Hparams = Mapping[str, Union[float, str, bool, None]]
"""Values by name. Numbers that JSON cannot express are strings, as in the API."""

YAML_SUFFIXES: Final = frozenset({".yaml", ".yml"})

_INTEGER_DIGITS_MAX: Final = 400
"""Digits of an integer that are read; no 64-bit number has as many."""

_KINDS: Final = {
    dict: "an object",
    list: "a list",
    bytes: "binary data",
    date: "a date (put it in quotes for a string)",
    datetime: "a time (put it in quotes for a string)",
}
"""Types of values that are refused, in words."""

_EXPONENT: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
"""Numbers such as 1e-4, which YAML 1.2 has and PyYAML, for YAML 1.1, reads as text."""


@dataclass(frozen=True)
class HparamsFile:
    """The content: either of named runs (`by_run`), or of all runs that have none (`for_all`)."""

    path: Path
    by_run: Mapping[str, Hparams] = field(default_factory=dict)
    for_all: Hparams | None = None

    def find(self, run: str) -> Hparams | None:
        """Return what is to be set for a run; None for nothing."""
        return self.by_run.get(run) if self.for_all is None else self.for_all

    def missing_runs(self, runs: Collection[str], series_filter: SeriesFilter) -> list[str]:
        """Return a sentence for each named run that the filter accepts and `runs` lacks."""
        return [
            f"{self.path}: the log directory has no run {run!r}"
            for run in self.by_run
            if run not in runs and series_filter.accepts_run(run)
        ]


NO_HPARAMS: Final = HparamsFile(Path())


def read_hparams_file(path: Path) -> HparamsFile:
    """Read and check a file: YAML if its name ends in .yaml or .yml, otherwise JSON.

    If all values of its object are objects, these are the hyperparameters by run; if none is one,
    it is itself the hyperparameters. Raises UsageError with line or field of the first problem.
    """
    text = _read_text(path)
    if not text.strip():
        raise UsageError(f"{path}: is empty: must be an object with hyperparameters, or with runs")
    try:
        content = _load_yaml(path, text) if path.suffix in YAML_SUFFIXES else _load_json(path, text)
    except RecursionError as error:
        raise UsageError(f"{path}: lists or objects are nested too deeply") from error
    if not isinstance(content, dict) or not content:
        raise UsageError(f"{path}: must be an object with hyperparameters, or with runs")

    nested = [name for name, value in content.items() if isinstance(value, dict)]
    if not nested:
        return HparamsFile(path, for_all=_check(path, "", content))
    for name, value in content.items():
        if not isinstance(value, dict):
            raise UsageError(
                f"{path}: {name!r} has a value, {nested[0]!r} an object: a file has either "
                "hyperparameters, or runs with their hyperparameters"
            )
    return HparamsFile(
        path,
        {_check_name(path, "", run): _check(path, f"{run!r}: ", content[run]) for run in content},
    )


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(HPARAMS_FILE_BYTES_MAX + 1)
        if len(content) > HPARAMS_FILE_BYTES_MAX:
            raise UsageError(f"{path}: has more than {HPARAMS_FILE_BYTES_MAX:,} bytes")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start:,} is not UTF-8") from error


def _load_json(path: Path, text: str) -> Any:
    def make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"{path}: {twice!r} occurs twice in one object")
        return content

    def make_integer(digits: str) -> int:
        return int(digits[:_INTEGER_DIGITS_MAX])  # Python refuses longer ones without a place

    try:
        return json.loads(text, object_pairs_hook=make_object, parse_int=make_integer)
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from error


def _load_yaml(path: Path, text: str) -> Any:
    """Return the document. PyYAML is needed for this alone, and is no dependency."""
    try:
        yaml = importlib.import_module("yaml")
    except ImportError as error:
        raise UsageError(
            f"{path}: YAML needs PyYAML: run `pip install pyyaml`, or write the file as JSON"
        ) from error

    try:
        return yaml.load(text, _make_loader(yaml))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise UsageError(f"{path}: {place}{error.problem}") from error
    except yaml.YAMLError as error:  # several lines, for characters that YAML does not have
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from error


def _make_loader(yaml: Any) -> Any:
    """Return PyYAML's safe loader, with 1e-4 as a number, and no name twice in a mapping."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # Any
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            names: set[str] = set()
            for key, _ in node.value:
                if isinstance(key.value, str):  # that of a list or mapping is refused later
                    if key.value in names:
                        raise yaml.constructor.ConstructorError(
                            None, None, f"{key.value!r} occurs twice in one mapping", key.start_mark
                        )
                    names.add(key.value)
            content: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return content

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except ValueError as error:  # a date that does not exist, an integer too long
                raise yaml.constructor.ConstructorError(
                    None, None, str(error), node.start_mark
                ) from error

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    return Loader


def _check(path: Path, place: str, content: Mapping[Any, Any]) -> Hparams:
    return {
        _check_name(path, place, name): _check_value(path, f"{place}{name!r}", value)
        for name, value in content.items()
    }


def _check_name(path: Path, place: str, name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(f"{path}: {place}the name {name!r} is not a string: put it in quotes")
    if not _is_unicode(name):
        raise UsageError(f"{path}: {place}the name {name!r} has half of a character")
    return name


def _check_value(path: Path, place: str, value: object) -> float | str | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and _is_unicode(value):
        return value
    if isinstance(value, (int, float)):
        return _check_number(path, place, value)
    kind = _KINDS.get(type(value), f"a {type(value).__name__}")
    problem = "has half of a character" if isinstance(value, str) else f"is {kind}"
    raise UsageError(f"{path}: {place} {problem}: must be a number, a string, true, false or null")


def _check_number(path: Path, place: str, value: float) -> float | str:
    try:
        number = float(value)
    except OverflowError as error:
        raise UsageError(f"{path}: {place} is too large for a 64-bit number") from error
    if math.isnan(number):
        return "NaN"
    if isinstance(value, int) and number != value:
        raise UsageError(
            f"{path}: {place} is an integer with more digits than a 64-bit number keeps: "
            "put it in quotes for a string"
        )
    return value if math.isfinite(number) else f"{'-' if number < 0 else ''}Infinity"


def _is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogate, which JSON can express and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
