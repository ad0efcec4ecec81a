"""List the runs of a workspace: filtered, sorted, in pages."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import Invalid, MalformedRequest
from tbservice.runs.columns import KnownColumns, RunColumn
from tbservice.runs.run_values import RunValues
from tbservice.runs.selected_runs import select_runs
from tbservice.runs.workspace_runs import RunPosition, SortKey, WorkspaceRuns
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import INT64_MAX, Int64s
from tbwire.hparams import HparamValue

RUNS_COLUMN_ITEMS_MAX: Final = 200
"""Columns (items) of a page."""

RUNS_SORT_ITEMS_MAX: Final = 5
"""Columns (items) that a table is sorted by."""

_AFTER: Final = "'after' is not the 'next' of an earlier page of the same filter and order"


@dataclass(frozen=True, slots=True)
class RunsQuery:
    """Filter, order, columns and page of a table of runs.

    `sort` has names of columns, with a `-` before one for descending order. Without `columns`, a
    page has those that most runs have. `always` come before them in any case, and are not folded.
    With `skips_unknown`,
    columns that no run has are left out, but not those of the filter, and the page names them. With
    `folds_equal` and without `columns`, those that say nothing are not columns: hyperparameters of
    which all selected runs have one value, and what none of them has.
    """

    where: str = ""
    sort: Sequence[str] = ()
    columns: Sequence[str] = ()
    after: str | None = None
    limit: int = 100
    always: Sequence[str] = ()
    skips_unknown: bool = False
    folds_equal: bool = False


@dataclass(frozen=True, slots=True)
class RunsPage:
    """A page of runs: for each, the value of each column; None for none.

    `total` counts the runs that the filter selects; `left_out` the experiments beyond
    RUNS_EXPERIMENT_ITEMS_MAX; `pending` the series whose minimum and maximum are still computed,
    and `pending_grants` names their experiments. `unknown` says which columns were left out;
    `equal` has the value of the hyperparameters that are no columns.
    """

    columns: list[str]
    rows: list[list[HparamValue | None]]
    total: int
    next: str | None
    known: KnownColumns
    left_out: bool = False
    pending: int = 0
    pending_grants: list[ReadGrant] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    equal: dict[str, HparamValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunsTable:
    """All runs that a filter selects: their values by column, and in `order` the row of each.

    `pending_grants` are those of `RunsPage`.
    """

    columns: dict[str, RunValues]
    order: Int64s
    pending_grants: list[ReadGrant]


def read_table(db: Connection, grant: WorkspaceGrant, query: RunsQuery) -> RunsTable:
    """Return all runs that the filter selects as a table: `after` and `limit` do not count.

    Arguments and errors are those of `list_runs`.
    """
    chosen = select_runs(db, grant, query.where)
    query, _ = keep_known(chosen.known, query)
    keys = resolve_sort(chosen.known, query.sort)
    columns = _resolve_columns(chosen.known, query)
    return RunsTable(
        {name: chosen.runs.column(column) for name, column in columns.items()},
        chosen.runs.sort(chosen.selected, keys),
        chosen.pending_grants,
    )


def list_runs(db: Connection, grant: WorkspaceGrant, query: RunsQuery) -> RunsPage:
    """Return a page of the runs of a workspace.

    Args:
        db: A snapshot of the workspace.
        grant: Grant to read all of the workspace.
        query: Which runs.

    Raises:
        FilterError: The filter cannot be parsed.
        UnknownColumn: No run has a column of the query.
        Invalid: Too many columns.
        TooLarge: There are too many runs, or regular expressions take too many steps.
        MalformedRequest: `after` is no page token of this filter and order.
    """
    chosen = select_runs(db, grant, query.where)
    runs, known, selected = chosen.runs, chosen.known, chosen.selected
    query, unknown = keep_known(known, query)
    keys = resolve_sort(known, query.sort)
    columns = _resolve_columns(known, query)

    total = int(selected.sum())
    equal = {}
    if query.folds_equal and not query.columns and total > 1:
        equal = _fold_equal(runs, np.flatnonzero(selected), columns, query.always)
    if query.after is not None:
        selected = selected & runs.follows(keys, _decode_token(query, query.after, len(keys)))
    rows = runs.sort(selected, keys)
    page = rows[: query.limit].tolist()
    has_more = len(rows) > query.limit
    return RunsPage(
        list(columns),
        runs.read_rows(page, list(columns.values())),
        total,
        _encode_token(query, runs.position_of(page[-1], keys)) if has_more else None,
        known,
        chosen.left_out,
        runs.pending,
        chosen.pending_grants,
        unknown,
        equal,
    )


def _fold_equal(
    runs: WorkspaceRuns, rows: Int64s, columns: dict[str, RunColumn], kept: Collection[str]
) -> dict[str, HparamValue]:
    """Take what says nothing from the columns; return the values of hyperparameters among it."""
    first = rows[0].item()
    equal: dict[str, HparamValue] = {}
    for name, column in list(columns.items()):
        ((value,),) = runs.read_rows([first], [column])
        is_folded = column.kind == "hparam" or (column.kind == "metric" and value is None)
        if is_folded and name not in kept and runs.column(column).is_same(rows):
            del columns[name]
            if value is not None:
                equal[name] = value
    return equal


def keep_known(
    known: KnownColumns, query: RunsQuery, sortable: Collection[str] = ()
) -> tuple[RunsQuery, list[str]]:
    """Return the query without what it may leave out, and why that was left out.

    A table is sorted by `sortable` too.
    """
    if not query.skips_unknown:
        return query, []
    sort = known.list_problems([name for name in query.sort if name not in sortable], "sort")
    columns = known.list_problems([*query.always, *query.columns], "columns")
    kept = replace(
        query,
        sort=[name for name in query.sort if name not in sort],
        columns=[name for name in query.columns if name not in columns],
        always=[name for name in query.always if name not in columns],
    )
    return kept, [*columns.values(), *sort.values()]


def check_sort(names: Sequence[str]) -> None:
    """Raise Invalid for more columns than a table is sorted by."""
    _check_count("sort", len(names), RUNS_SORT_ITEMS_MAX)


def resolve_sort(known: KnownColumns, names: Sequence[str]) -> list[SortKey]:
    """Return the order that names of columns mean. Raises UnknownColumn, Invalid."""
    check_sort(names)
    return [
        SortKey(known.resolve(name.removeprefix("-"), "sort"), name.startswith("-"))
        for name in names
    ]


def _resolve_columns(known: KnownColumns, query: RunsQuery) -> dict[str, RunColumn]:
    """Return the columns of a table by name. Raises UnknownColumn, Invalid."""
    names = list(dict.fromkeys([*query.always, *(query.columns or known.list_default())]))
    check_columns(names)
    return {name: known.resolve(name, "columns") for name in names}


def check_columns(names: Sequence[str]) -> None:
    """Raise Invalid for more columns than a page has."""
    _check_count("columns", len(names), RUNS_COLUMN_ITEMS_MAX)


def _check_count(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise Invalid(f"{what}: {count} columns are over the limit of {limit}")


def _digest(query: RunsQuery) -> str:
    """Return a text that is the same for all pages of a table."""
    content = json.dumps([query.where, list(query.sort)])
    return hashlib.sha256(content.encode(errors="replace")).hexdigest()[:16]


def _encode_token(query: RunsQuery, position: RunPosition) -> str:
    fields = [_digest(query), list(position.values), position.number, position.run_id]
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()


def _decode_token(query: RunsQuery, after: str, keys: int) -> RunPosition:
    try:
        digest, values, number, run_id = json.loads(base64.urlsafe_b64decode(after))
        is_valid = (
            digest == _digest(query)
            and isinstance(values, list)
            and len(values) == keys
            and all(_is_value(value) for value in values)
            and all(type(each) is int and 0 <= each <= INT64_MAX for each in (number, run_id))
        )
    except (binascii.Error, ValueError, TypeError, RecursionError) as error:
        raise MalformedRequest(_AFTER) from error
    if not is_valid:
        raise MalformedRequest(_AFTER)
    return RunPosition(values, number, run_id)


def _is_value(value: Any) -> bool:
    return value is None or isinstance(value, bool | float | str)
