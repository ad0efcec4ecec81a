"""Groups of runs: those with equal values in some columns, or in part of their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice.errors import Invalid, TooLarge
from tbservice.patterns import PatternSearches, compile_pattern
from tbservice.runs import run_values
from tbservice.runs.columns import KnownColumns, RunColumn
from tbservice.runs.run_values import RunValues
from tbservice.runs.workspace_runs import WorkspaceRuns
from tbservice.types.identifiers import Float64s, Int64s
from tbwire.hparams import HparamValue

RUN_GROUP_ITEMS_MAX: Final = 1_000
"""Groups (items) that runs form."""

GROUP_COLUMN_ITEMS_MAX: Final = 200
"""Columns (items) that runs are grouped by."""

RUN_PATTERN: Final = "run_pattern"
"""Name of the value that a pattern finds in the names of the runs."""

_ALL_HPARAMS: Final = "*"
_HPARAM: Final = "hparam."


@dataclass(frozen=True, slots=True)
class GroupBy:
    """Columns and a pattern of names that runs are grouped by.

    `columns` has names of columns, `*` for all hyperparameters of the selected runs, and names with
    a `-` before them for hyperparameters that are left out of these: alone, they mean `*` as well.
    `pattern` is an RE2 expression: runs are grouped by what its group matches in their names.
    """

    columns: Sequence[str] = ()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class RunGroups:
    """Groups of runs, in the order of their values.

    `keys` has, for each group, the value of each of `names`: None if its runs have none. Of the
    runs at `rows`, `codes` has the index of the group. `ranks` has one array for each name: the
    groups in the order of its values, NaN for None.
    """

    names: list[str]
    keys: list[list[HparamValue | None]]
    rows: Int64s
    codes: Int64s
    ranks: list[Float64s]


def group_runs(
    runs: WorkspaceRuns, known: KnownColumns, rows: Int64s, group_by: GroupBy
) -> RunGroups:
    """Return the groups of the runs at some rows, which ascend; without any column, one group.

    Runs without a value in a column are a group of their own there. Values of different types are
    different: 1, "1" and true. Texts are compared by code points.

    Raises:
        UnknownColumn: No run has a column.
        Invalid: The pattern is invalid, or there are too many columns.
        TooLarge: There are more than RUN_GROUP_ITEMS_MAX groups.
    """
    columns = _resolve(runs, known, rows, group_by.columns)
    values = [runs.column(column).take(rows) for column in columns]
    names = [known.name_of(column) for column in columns]
    if group_by.pattern is not None:
        values.append(_match_names(runs, rows, group_by.pattern))
        names.append(RUN_PATTERN)

    codes = np.zeros(len(rows), np.int64)
    ranks = [each.ranks() for each in values]
    for column_ranks in ranks:
        # NaN, which is a missing value, is equal to itself here, and last.
        distinct, inverse = np.unique(column_ranks, return_inverse=True)
        codes = np.unique(codes * len(distinct) + inverse, return_inverse=True)[1]
    firsts = np.unique(codes, return_index=True)[1]
    if len(firsts) > RUN_GROUP_ITEMS_MAX:
        raise TooLarge(
            f"the runs form {len(firsts)} groups, over the limit of {RUN_GROUP_ITEMS_MAX} "
            "(run_group_items_max): group by fewer columns, or select runs with a filter"
        )
    keys = [[value_of(column, first) for column in values] for first in firsts.tolist()]
    return RunGroups(names, keys, rows, codes, [each[firsts] for each in ranks])


def value_of(values: RunValues, row: int) -> HparamValue | None:
    """Return one value of a column; None for none."""
    kind = values.kinds[row]
    if kind == run_values.MISSING:
        return None
    if kind == run_values.TEXT:
        return str(values.texts[values.codes[row]])
    number = float(values.numbers[row])
    return bool(number) if kind == run_values.BOOL else number


def _resolve(
    runs: WorkspaceRuns, known: KnownColumns, rows: Int64s, names: Sequence[str]
) -> list[RunColumn]:
    left_out = {_resolve_left_out(known, name) for name in names if name.startswith("-")}
    columns: dict[RunColumn, None] = {}
    for name in names:
        if name == _ALL_HPARAMS or name.startswith("-"):
            columns |= dict.fromkeys(_list_hparams(runs, rows, left_out))
        else:
            columns[known.resolve(name, "group_by")] = None
    if len(columns) > GROUP_COLUMN_ITEMS_MAX:
        raise Invalid(
            f"group_by: {len(columns)} columns are over the limit of {GROUP_COLUMN_ITEMS_MAX} "
            "(group_column_items_max)"
        )
    return list(columns)


def _resolve_left_out(known: KnownColumns, name: str) -> RunColumn:
    """Return the hyperparameter that a name with a `-` before it leaves out."""
    hparam = name[1:].removeprefix(_HPARAM)
    if hparam in known.hparams:
        return RunColumn("hparam", hparam)
    column = known.resolve(name[1:], "group_by")
    raise Invalid(f"group_by: {name!r} leaves out no hyperparameter, but a {column.kind} column")


def _list_hparams(
    runs: WorkspaceRuns, rows: Int64s, left_out: set[RunColumn]
) -> Iterator[RunColumn]:
    names: set[str] = set()
    for index, own_rows in runs.split(rows):
        names |= runs.parts[index].list_hparams(own_rows)
    columns = (RunColumn("hparam", name) for name in sorted(names))
    return (column for column in columns if column not in left_out)


def _match_names(runs: WorkspaceRuns, rows: Int64s, pattern: str) -> RunValues:
    """Return what the group of the pattern matches in the name of each run."""
    try:
        compiled = compile_pattern(pattern)
    except ValueError as error:
        raise Invalid(f"{RUN_PATTERN}: {error}") from error
    if compiled.groups > 1:
        raise Invalid(
            f"{RUN_PATTERN}: {compiled.groups} groups; write (?:…) for all but the one that names "
            "the group of runs"
        )
    searches = PatternSearches()
    names = runs.column(RunColumn("run", "run")).take(rows)
    matched = [searches.find_group(compiled, text) for text in names.texts]
    return run_values.of_objects(matched[code] for code in names.codes.tolist())
