"""Runs, and groups of runs, as columns of Arrow: for tables in files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tbservice.hparams.values import to_text
from tbservice.runs import run_values
from tbservice.runs.group_table import RUNS_COLUMN, GroupsPage, list_group_rows
from tbservice.runs.run_values import BOOL, MISSING, NUMBER, TEXT, RunValues
from tbservice.runs.use_cases import RunsTable
from tbservice.types.identifiers import Int64s


def encode_runs(table: RunsTable) -> dict[str, pa.Array]:
    """Return the columns of a table of runs, in its order."""
    return {name: encode_column(values, table.order) for name, values in table.columns.items()}


def encode_groups(page: GroupsPage) -> dict[str, pa.Array]:
    """Return the columns of groups, as `list_group_rows` names them."""
    _, columns, rows = list_group_rows(page)
    counts = {RUNS_COLUMN, *(f"{name}.count" for name in page.columns)}
    order = np.arange(len(rows))
    table = {}
    for index, name in enumerate(columns):
        column = encode_column(run_values.of_objects(row[index] for row in rows), order)
        table[name] = column.cast(pa.int64()) if name in counts else column
    return table


def encode_column(values: RunValues, rows: Int64s) -> pa.Array:
    """Return the values of some rows, in that order: numbers, booleans, or texts.

    A column with values of several types is of texts, as numbers are written in JSON.
    """
    kinds = values.kinds[rows]
    is_missing = kinds == MISSING
    found = set(np.unique(kinds[~is_missing]).tolist())
    if found <= {NUMBER}:
        return pa.array(values.numbers[rows], mask=is_missing)
    if found == {BOOL}:
        return pa.array(values.numbers[rows] == 1, mask=is_missing)
    if found == {TEXT}:
        codes = pa.array(values.codes[rows], mask=is_missing)
        return pa.array(values.texts, pa.string()).take(codes)
    return pa.array([_text(values, row) for row in rows.tolist()], pa.string())


def _text(values: RunValues, row: int) -> str | None:
    kind, number = values.kinds[row], float(values.numbers[row])
    if kind == MISSING:
        return None
    if kind == TEXT:
        return str(values.texts[values.codes[row]])
    return to_text(number == 1 if kind == BOOL else number)
