"""Columns of a table of runs: names, and what each is of."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tbservice.errors import Invalid
from tbservice.runs.experiment_runs import METRIC_FIELDS

ORIGIN_COLUMNS: Final = (
    "host",
    "user",
    "git_commit",
    "git_branch",
    "python",
    "platform",
    "gpus",
)
"""Columns of where the runs of an experiment come from: keys of an upload's origin."""

RUN_COLUMNS: Final = (
    "experiment",
    "run",
    "experiment_name",
    "status",
    "training",
    "tags",
    "started",
    "duration",
    *ORIGIN_COLUMNS,
)
"""Columns of every run that are neither hyperparameters, nor metrics, nor packages."""

DEFAULT_HPARAM_ITEMS: Final = 20
DEFAULT_METRIC_ITEMS: Final = 10
_DEFAULT_RUN_COLUMNS: Final = ("experiment", "run", "experiment_name", "status", "started")
_NEAR_MISS_ITEMS: Final = 3
_NEAR_MISS_NAMES_MAX: Final = 20_000


_NAME: Final = re.compile(r"`([^`]*)`((?:\.\w+)?)|([^,`]+)")


class UnknownColumn(Invalid):
    """No run of the workspace has the column; the detail has similar names."""

    code = "unknown_column"


@dataclass(frozen=True, slots=True)
class RunColumn:
    """A column: `kind` is run, hparam, metric or package, whose name is normalized.

    Of a metric, `field` is one of METRIC_FIELDS.
    """

    kind: str
    name: str
    field: str = ""


@dataclass(frozen=True, slots=True)
class KnownColumns:
    """The hyperparameters and scalar tags that runs have, with the number of runs of each.

    `count_packages` does the same for packages: few tables have columns of them.
    """

    hparams: Counter[str]
    metrics: Counter[str]
    count_packages: Callable[[], Counter[str]]

    def resolve(self, name: str, where: str) -> RunColumn:
        """Return the column that a name means.

        A name is first a column of every run, then a hyperparameter, then a metric; `hparam.` and
        `metric.` before it select, and `package.` is before each package.
        Raises UnknownColumn, which says `where` the name was given.
        """
        column = self._find(name)
        if column is not None:
            return column
        raise _make_unknown(f"{where}: no run has a column", name, self._list_names())

    def list_problems(self, names: Iterable[str], where: str) -> dict[str, str]:
        """Return what is wrong with those of the names that mean no column, as `resolve` says it.

        A `-` before a name, and `*`, are as in an order and in columns to group by.
        """
        problems = {}
        for name in names:
            try:
                if name != "*":
                    self.resolve(name.removeprefix("-"), where)
            except UnknownColumn as error:
                problems[name] = error.detail
        return problems

    def check_metric(self, tag: str, where: str) -> None:
        """Raise UnknownColumn, with similar tags, unless a run has this scalar tag."""
        if tag not in self.metrics:
            raise _make_unknown(f"{where}: no run has a scalar tag", tag, self.metrics)

    def _find(self, name: str) -> RunColumn | None:
        if name in RUN_COLUMNS:
            return RunColumn("run", name)
        kind, _, rest = name.partition(".")
        if kind == "hparam" and rest in self.hparams:
            return RunColumn("hparam", rest)
        if kind == "metric" and (metric := self._find_metric(rest)) is not None:
            return metric
        if kind == "package" and normalize_package(rest) in self.count_packages():
            return RunColumn("package", normalize_package(rest))
        if name in self.hparams:
            return RunColumn("hparam", name)
        return self._find_metric(name)

    def _find_metric(self, name: str) -> RunColumn | None:
        if name in self.metrics:
            return RunColumn("metric", name, "last")
        tag, _, field = name.rpartition(".")
        if tag in self.metrics and field in METRIC_FIELDS:
            return RunColumn("metric", tag, field)
        return None

    def name_of(self, column: RunColumn) -> str:
        """Return the shortest name of a column."""
        name = column.name if column.field in {"", "last"} else f"{column.name}.{column.field}"
        return name if self._find(name) == column else f"{column.kind}.{name}"

    def list_default(self) -> list[str]:
        """Return the columns that a table has by default: those that most runs have."""
        hparams = _list_most_common(self.hparams, DEFAULT_HPARAM_ITEMS)
        metrics = _list_most_common(self.metrics, DEFAULT_METRIC_ITEMS)
        return [
            *_DEFAULT_RUN_COLUMNS,
            *(self.name_of(RunColumn("hparam", name)) for name in hparams),
            *(self.name_of(RunColumn("metric", tag, "last")) for tag in metrics),
        ]

    def _list_names(self) -> Iterator[str]:
        yield from RUN_COLUMNS
        yield from self.hparams
        for tag in self.metrics:
            yield tag
            yield f"{tag}.min"
            yield f"{tag}.max"
        for package in self.count_packages():
            yield f"package.{package}"


def normalize_package(name: str) -> str:
    """Return the name by which a package is known, however it is written (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def join_names(names: Iterable[str]) -> str:
    """Return names as `split_names` takes them; a name with a backtick cannot be written so."""
    return ", ".join(f"`{name}`" if "," in name or name != name.strip() else name for name in names)


def split_names(text: str) -> list[str]:
    """Return names with commas between them; those with commas in them are in backticks."""
    names = [
        f"{quoted}{suffix}" if quoted else plain.strip()
        for quoted, suffix, plain in _NAME.findall(text)
    ]
    return [name for name in names if name]


def _make_unknown(problem: str, name: str, existing: Iterable[str]) -> UnknownColumn:
    """Return the error with the existing names that are similar."""
    names = list(existing)[:_NEAR_MISS_NAMES_MAX]
    near = difflib.get_close_matches(name[:200], names, _NEAR_MISS_ITEMS)
    if not near:
        near = [each for each in names if name.lower() in each.lower()][:_NEAR_MISS_ITEMS]
    hint = f": did you mean {', '.join(near)}?" if near else ""
    return UnknownColumn(f"{problem} {name[:200]!r}{hint}")


def _list_most_common(counts: Counter[str], limit: int) -> Sequence[str]:
    """Return the names with the greatest counts, in the order of the names."""
    return sorted(sorted(counts, key=lambda name: (-counts[name], name))[:limit])
