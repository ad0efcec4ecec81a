"""Table of the page of runs as text to copy into a document."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from tbservice.runs.group_table import RUNS_COLUMN, GroupsPage, MeanValue
from tbservice.runs.use_cases import RunsPage
from tbwire.document_tables import latex_lines, markdown_lines
from tbwire.hparams import HparamValue

Show = Callable[[str, HparamValue | MeanValue | None], str]
"""Returns a value of a column as people read it."""

_LINES: Final = {"Markdown": markdown_lines, "LaTeX": latex_lines}


def write_groups(groups: GroupsPage, left_out: Collection[str], show: Show) -> dict[str, str]:
    """Return the table of all groups in each form, without some columns that name them."""
    shown = [(index, name) for index, name in enumerate(groups.names) if name not in left_out]
    rows = [
        [
            *(show(name, row.key[index]) for index, name in shown),
            str(row.runs),
            *(show(name, mean) for name, mean in zip(groups.columns, row.means, strict=True)),
        ]
        for row in groups.rows
    ]
    return _write([*(name for _, name in shown), RUNS_COLUMN, *groups.columns], rows)


def write_runs(found: RunsPage, shown: Sequence[tuple[int, str]], show: Show) -> dict[str, str]:
    """Return the table of the runs of a page in each form: some columns, by their positions."""
    rows = [[show(name, row[index]) for index, name in shown] for row in found.rows]
    return _write([name for _, name in shown], rows)


def _write(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    return {form: "\n".join(lines(columns, rows)) for form, lines in _LINES.items()}
