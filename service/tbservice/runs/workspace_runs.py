"""The runs of several experiments as one table: columns, filters and order."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tbservice.experiment_values import UploadStatus
from tbservice.patterns import PatternSearches, compile_pattern
from tbservice.runs import run_values
from tbservice.runs.columns import ORIGIN_COLUMNS, KnownColumns, RunColumn
from tbservice.runs.experiment_runs import TAG_END, ExperimentRuns
from tbservice.runs.filters import Comparison, Every, Filter, IsMissing, Not, Some
from tbservice.runs.origins import RunOrigin
from tbservice.runs.run_values import BOOL, MISSING, NUMBER, TEXT, Bools, RunValues
from tbservice.types.experiments import Experiment
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbwire.hparams import HparamValue

_OF_EXPERIMENTS: Final = frozenset({"experiment", "experiment_name", "training", *ORIGIN_COLUMNS})
"""Columns of every run that are the same for all runs of an experiment."""

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column that a table is sorted by."""

    column: RunColumn
    is_descending: bool


@dataclass(frozen=True, slots=True)
class RunPosition:
    """The place of a run in a sorted table: its values, and number of experiment and id of run."""

    values: Sequence[HparamValue | None]
    number: int
    run_id: int


@dataclass(slots=True)
class WorkspaceRuns:
    """Runs of experiments, one experiment after the other; nothing of it is copied before use."""

    experiments: Sequence[Experiment]
    parts: Sequence[ExperimentRuns]
    trainings: Mapping[ExperimentId, UploadStatus]
    origins: Mapping[ExperimentId, RunOrigin]
    now: float
    _columns: dict[RunColumn, RunValues] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @property
    def pending(self) -> int:
        """Number of series of which minimum and maximum are not computed yet."""
        return sum(part.pending for part in self.parts)

    def list_known(self) -> KnownColumns:
        """Return the hyperparameters and metrics that there are."""
        hparams: Counter[str] = Counter()
        metrics: Counter[str] = Counter()
        for part in self.parts:
            hparams.update(part.count_hparams())
            metrics.update(part.count_metrics())
        return KnownColumns(hparams, metrics, functools.cache(self._count_packages))

    def _count_packages(self) -> Counter[str]:
        """Return how many runs have each package."""
        runs: Counter[int] = Counter()
        environments: dict[int, Mapping[str, str]] = {}
        for experiment, part in zip(self.experiments, self.parts, strict=True):
            if (origin := self.origins.get(experiment.experiment_id)) is not None:
                environments[id(origin.packages)] = origin.packages  # many have the same
                runs[id(origin.packages)] += len(part)
        counts: Counter[str] = Counter()
        for key, packages in environments.items():
            counts.update(dict.fromkeys(packages, runs[key]))
        return counts

    def column(self, column: RunColumn) -> RunValues:
        """Return a column of all runs."""
        if column not in self._columns:
            if not self.parts:
                return run_values.of_objects([])
            is_same = column.kind == "run" and column.name in _OF_EXPERIMENTS
            self._columns[column] = (
                self._repeat_texts(column)
                if is_same or column.kind == "package"
                else run_values.concatenate(
                    [
                        self._column_of(experiment, part, column)
                        for experiment, part in zip(self.experiments, self.parts, strict=True)
                    ]
                )
            )
        return self._columns[column]

    def _repeat_texts(self, column: RunColumn) -> RunValues:
        """Return a column that is the same for all runs of an experiment."""
        values = run_values.of_objects(self._text_of(each, column) for each in self.experiments)
        rows = np.repeat(np.arange(len(self.parts)), list(map(len, self.parts)))
        return RunValues(values.kinds[rows], values.numbers[rows], values.codes[rows], values.texts)

    def split(self, rows: Int64s) -> Iterator[tuple[int, Int64s]]:
        """Yield, for each experiment with some of these ascending rows, its index and its rows."""
        ends = np.cumsum(list(map(len, self.parts)))
        bounds = np.searchsorted(rows, ends)
        for index, (start, end) in enumerate(itertools.pairwise([0, *bounds.tolist()])):
            if start < end:
                yield index, rows[start:end] - (int(ends[index - 1]) if index else 0)

    def select(self, tree: Filter | None, resolved: Mapping[str, RunColumn]) -> Bools:
        """Return which runs a filter selects; `resolved` has its columns by name.

        A run without a value in a column matches no comparison with it. Numbers are compared with
        numbers only, texts with texts, booleans with booleans. Raises TooLarge for texts that take
        too many steps to search.
        """
        return np.ones(len(self), bool) if tree is None else _Selection(self, resolved).select(tree)

    def sort(self, selected: Bools, keys: Sequence[SortKey]) -> Int64s:
        """Return the positions of the selected runs in order; runs without a value come last.

        Equal ones are in the order of the table.
        """
        rows = np.flatnonzero(selected)
        arrays: list[Float64s | Bools] = []
        for key in reversed(keys):
            ranks = self.column(key.column).take(rows).ranks()
            arrays += [-ranks if key.is_descending else ranks, np.isnan(ranks)]
        return rows[np.lexsort(arrays)] if arrays else rows

    def follows(self, keys: Sequence[SortKey], position: RunPosition) -> Bools:
        """Return which runs come after a position; its run may be gone, or changed."""
        after = np.zeros(len(self), bool)
        equal = np.ones(len(self), bool)
        for key, value in zip(keys, position.values, strict=True):
            column = self.column(key.column)
            is_missing = column.kinds == MISSING
            is_less, is_equal = _compare(column, value)
            is_after = np.zeros(len(self), bool)
            if value is not None:
                is_greater = ~is_less & ~is_equal & ~is_missing
                is_after = (is_less if key.is_descending else is_greater) | is_missing
            after |= equal & is_after
            equal &= is_equal
        numbers = np.repeat([each.number for each in self.experiments], list(map(len, self.parts)))
        run_ids = np.concatenate([np.empty(0, np.int64), *(part.run_ids for part in self.parts)])
        # Experiments are in the order of descending numbers.
        is_later = (numbers < position.number) | (
            (numbers == position.number) & (run_ids > position.run_id)
        )
        follows: Bools = after | (equal & is_later)
        return follows

    def position_of(self, row: int, keys: Sequence[SortKey]) -> RunPosition:
        """Return the place of a run."""
        ((index, place),) = self.locate([row])
        (values,) = self.read_rows([row], [key.column for key in keys])
        run_id = int(self.parts[index].run_ids[place])
        return RunPosition(values, self.experiments[index].number, run_id)

    def read_rows(
        self, rows: Sequence[int], columns: Sequence[RunColumn]
    ) -> list[list[HparamValue | None]]:
        """Return the values of some runs, of each column; several tags as lines of one text."""
        known: dict[tuple[int, RunColumn], RunValues] = {}
        places = self.locate(rows)
        return [[self._value(place, column, known) for column in columns] for place in places]

    def _value(
        self,
        located: tuple[int, int],
        column: RunColumn,
        known: dict[tuple[int, RunColumn], RunValues],
    ) -> HparamValue | None:
        index, place = located
        part = self.parts[index]
        if column.kind == "hparam":
            return part.hparam_of(place, column.name)
        if column.kind == "metric":
            return part.metric_of(place, column.name, column.field)
        if column.name == "run":
            return str(part.names[place])
        if (index, column) not in known:
            known[index, column] = self._column_of(self.experiments[index], part, column)
        values = known[index, column]
        if values.kinds[place] == TEXT:
            return str(values.texts[values.codes[place]])
        return float(values.numbers[place]) if values.kinds[place] else None

    def locate(self, rows: Sequence[int]) -> list[tuple[int, int]]:
        """Return the position of the experiment of each run, and of the run in it."""
        ends = np.cumsum(list(map(len, self.parts)))
        indexes = np.searchsorted(ends, rows, "right")
        places = rows - np.concatenate([[0], ends])[indexes]
        return list(zip(indexes.tolist(), places.tolist(), strict=True))

    def _column_of(
        self, experiment: Experiment, part: ExperimentRuns, column: RunColumn
    ) -> RunValues:
        if column.kind == "hparam":
            return part.hparam(column.name)
        if column.kind == "metric":
            return part.metric(column.name, column.field)
        of_runs: dict[str, Callable[[], RunValues]] = {
            "run": part.run_names,
            "status": lambda: part.statuses(self.now, self.trainings.get(experiment.experiment_id)),
            "started": part.started,
            "duration": part.durations,
            "tags": lambda: part.all_tags(experiment.tags),
        }
        if column.name in of_runs:
            return of_runs[column.name]()
        text = self._text_of(experiment, column)
        codes = np.full(len(part), -1 if text is None else 0)
        return run_values.of_codes(codes, [] if text is None else [text])

    def _text_of(self, experiment: Experiment, column: RunColumn) -> str | None:
        """Return a value that is the same for all runs of an experiment."""
        id_, name = experiment.experiment_id, column.name
        origin = self.origins.get(id_, RunOrigin({}))
        if column.kind == "package":
            return origin.packages.get(name)
        texts: dict[str, str | None] = {
            "experiment": id_,
            "experiment_name": experiment.name,
            "training": self.trainings[id_].value if id_ in self.trainings else None,
        }
        return texts[name] if name in texts else origin.texts.get(name)


class _Selection:
    """Evaluates one filter, within the steps that regular expressions may take."""

    def __init__(self, runs: WorkspaceRuns, resolved: Mapping[str, RunColumn]) -> None:
        self._runs = runs
        self._resolved = resolved
        self._searches = PatternSearches()

    def select(self, tree: Filter) -> Bools:
        match tree:
            case Comparison():
                return self._compare(tree)
            case IsMissing():
                result: Bools = self._values(tree.column.name).kinds == MISSING
                return result
            case Not():
                return ~self.select(tree.term)
            case Every():
                return functools.reduce(operator.and_, map(self.select, tree.terms))
            case Some():
                return functools.reduce(operator.or_, map(self.select, tree.terms))

    def _values(self, name: str) -> RunValues:
        return self._runs.column(self._resolved[name])

    def _compare(self, term: Comparison) -> Bools:
        values, value = self._values(term.column.name), term.value
        if isinstance(value, str):
            is_true = self._make_text_condition(term.operator, value)
            if self._resolved[term.column.name] == RunColumn("run", "tags"):
                return values.matches_text(
                    lambda text: any(is_true(tag) for tag in text.split(TAG_END))
                )
            if term.operator in {"~", "!~"}:
                is_found = values.matches_pattern(value, self._searches)
                return is_found if term.operator == "~" else (values.kinds == TEXT) & ~is_found
            return values.matches_text(is_true)
        compare = _COMPARE[term.operator]
        kind = BOOL if isinstance(value, bool) else NUMBER
        if value != value and term.operator in {"=", "!="}:  # noqa: PLR0124 - NaN
            is_equal = term.operator == "="
            return values.matches(kind, lambda numbers: np.isnan(numbers) == is_equal)
        return values.matches(kind, lambda numbers: compare(numbers, value))

    def _make_text_condition(self, symbol: str, value: str) -> Callable[[str], bool]:
        if symbol in {"~", "!~"}:
            pattern = compile_pattern(value)
            is_wanted = symbol == "~"
            return lambda text: self._searches.has_match(pattern, text) == is_wanted
        compare = _COMPARE[symbol]
        return lambda text: bool(compare(text, value))


def _compare(column: RunValues, value: HparamValue | None) -> tuple[Bools, Bools]:
    """Return which values are less than a value in the order of `RunValues.ranks`, and equal."""
    kinds, numbers = column.kinds, column.numbers
    nothing = np.zeros(len(kinds), bool)
    if value is None:
        return nothing, kinds == MISSING
    kind = TEXT if isinstance(value, str) else BOOL if isinstance(value, bool) else NUMBER
    is_less = (kinds != MISSING) & (kinds < kind)
    if isinstance(value, str):
        is_less |= column.matches_text(lambda text: text < value)
        return is_less, column.matches_text(lambda text: text == value)
    if value != value:  # noqa: PLR0124 - NaN is after all numbers
        is_nan = (kinds == NUMBER) & np.isnan(numbers)
        return is_less | ((kinds == NUMBER) & ~is_nan), is_nan
    is_less |= column.matches(kind, lambda each: each < value)
    return is_less, column.matches(kind, lambda each: each == value)
