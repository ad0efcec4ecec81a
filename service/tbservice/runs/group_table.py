"""The table of groups of runs: of each column, mean and deviation over the runs of a group."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import Invalid
from tbservice.runs.columns import KnownColumns
from tbservice.runs.grouping import GroupBy, RunGroups, group_runs
from tbservice.runs.run_values import NUMBER
from tbservice.runs.selected_runs import SelectedRuns, select_runs
from tbservice.runs.spread import GroupMeans, compute_means
from tbservice.runs.use_cases import RunsQuery, check_columns, check_sort, keep_known
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, Float64s
from tbwire.hparams import HparamValue

RUNS_COLUMN: Final = "runs"
"""Column of a grouped table with the number of runs."""


class MeanValue(NamedTuple):
    """Mean and sample deviation of a column over the runs of a group that have a finite number.

    None without such a run, and for the deviation of a single one.
    """

    mean: float | None
    std: float | None
    count: int  # type: ignore[assignment] # hides a method of tuples


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group: its value of each column that runs are grouped by, and a mean of each other."""

    key: list[HparamValue | None]
    runs: int
    means: list[MeanValue]


@dataclass(frozen=True, slots=True)
class GroupsPage:
    """The first groups of a table, and how many there are; else as `RunsPage`.

    `experiments` are those of the runs.
    """

    names: list[str]
    columns: list[str]
    rows: list[GroupRow]
    total: int
    known: KnownColumns
    left_out: bool
    pending: int
    pending_grants: list[ReadGrant]
    experiments: list[ExperimentId]
    unknown: list[str] = field(default_factory=list)


def list_groups(
    db: Connection, grant: WorkspaceGrant, query: RunsQuery, group_by: GroupBy
) -> GroupsPage:
    """Return the first `limit` groups of the selected runs: by their values, or sorted.

    The columns are those of the query, or the metrics that most runs have: of metrics, mean and
    deviation of the last values (or least, greatest …). `sort` names columns that runs are grouped
    by, other columns, whose means it compares, or `runs`.

    Raises as `list_runs` and `group_runs`, and Invalid for a page token: there is one page.
    """
    if query.after is not None:
        raise Invalid("after: a table of groups has one page")
    check_sort(query.sort)
    chosen = select_runs(db, grant, query.where)
    query, unknown = keep_known(chosen.known, query, {RUNS_COLUMN, f"-{RUNS_COLUMN}"})
    if query.skips_unknown:
        gone = chosen.known.list_problems(group_by.columns, "group")
        # All but a hyperparameter that is gone: all.
        kept = ["*" if name in gone and name[0] == "-" else name for name in group_by.columns]
        group_by = replace(group_by, columns=[name for name in kept if name not in gone])
        unknown = [*gone.values(), *unknown]
    groups = group_runs(chosen.runs, chosen.known, np.flatnonzero(chosen.selected), group_by)
    columns = _resolve_columns(chosen.known, query.columns, groups)
    counts = np.bincount(groups.codes, minlength=len(groups.keys))
    means = {name: _compute(chosen, groups, name) for name in columns}

    order = np.arange(len(groups.keys))
    for name in reversed(query.sort):
        ranks = _rank(chosen, groups, means, counts.astype(np.float64), name.removeprefix("-"))
        ranks = ranks[order]
        order = order[np.lexsort([-ranks if name.startswith("-") else ranks, np.isnan(ranks)])]
    rows = [
        GroupRow(
            groups.keys[group],
            int(counts[group]),
            [_make_value(each, group) for each in means.values()],
        )
        for group in order[: query.limit].tolist()
    ]
    return GroupsPage(
        groups.names,
        columns,
        rows,
        len(order),
        chosen.known,
        chosen.left_out,
        chosen.runs.pending,
        chosen.pending_grants,
        [
            chosen.runs.experiments[index].experiment_id
            for index, _ in chosen.runs.split(groups.rows)
        ],
        unknown,
    )


def _resolve_columns(known: KnownColumns, names: Sequence[str], groups: RunGroups) -> list[str]:
    """Return the names of the columns with means, without those that runs are grouped by."""
    listed = [known.resolve(name, "columns") for name in names or known.list_default()]
    if not names:
        listed = [column for column in listed if column.kind == "metric"]
    columns = [name for name in map(known.name_of, listed) if name not in groups.names]
    check_columns(columns)
    return list(dict.fromkeys(columns))


def _compute(chosen: SelectedRuns, groups: RunGroups, name: str) -> GroupMeans:
    values = chosen.runs.column(chosen.known.resolve(name, "columns")).take(groups.rows)
    numbers = np.where(values.kinds == NUMBER, values.numbers, np.nan)
    return compute_means(numbers, groups.codes, len(groups.keys))


def _rank(
    chosen: SelectedRuns,
    groups: RunGroups,
    means: Mapping[str, GroupMeans],
    counts: Float64s,
    name: str,
) -> Float64s:
    """Return numbers in the order of the groups; NaN for those that come last."""
    if name in groups.names:
        return groups.ranks[groups.names.index(name)]
    if name in means:
        return means[name].mean
    if name == RUNS_COLUMN:
        return counts
    resolved = chosen.known.name_of(chosen.known.resolve(name, "sort"))
    if resolved in groups.names:
        return groups.ranks[groups.names.index(resolved)]
    return _compute(chosen, groups, resolved).mean


def _make_value(means: GroupMeans, group: int) -> MeanValue:
    count = int(means.counts[group])
    mean, std = float(means.mean[group]), float(means.std[group])
    return MeanValue(mean if count else None, std if count > 1 else None, count)


def list_group_rows(
    page: GroupsPage,
) -> tuple[list[str], list[str], list[list[HparamValue | None]]]:
    """Return the names of the groups' values, all columns, and a row of these for each group.

    First its values, then the number of runs, then the means.
    """
    means = [f"{name}.{suffix}" for name in page.columns for suffix in ("mean", "std", "count")]
    taken = {RUNS_COLUMN, *means}
    by = [f"hparam.{name}" if name in taken else name for name in page.names]
    columns = [*by, RUNS_COLUMN, *means]
    rows = [[*row.key, row.runs, *itertools.chain(*row.means)] for row in page.rows]
    return by, columns, rows
