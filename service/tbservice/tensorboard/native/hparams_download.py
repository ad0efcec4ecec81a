r"""The table of session groups as CSV, LaTeX or JSON: `download_data`.

The stock ones are in `tensorboard/plugins/hparams/download_data.py`. Two differences: the columns
are those of the request, which the page's flags belong to, and in LaTeX all special characters are
escaped: names and values are users' text, and `\input` reads files.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tbservice.hparams.encoding import SessionGroupRow
from tbservice.hparams.requests import ColumnParams, MetricId
from tbservice.hparams.schema import Schema
from tbservice.tensorboard.native import json_answers
from tbwire.hparams import HparamValue

MEDIA_TYPES: Final = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "latex": "application/x-latex",
}
"""Media types by the name of the format."""

_ColumnName = MetricId | str
_Cell = HparamValue | None
_LATEX: Final = str.maketrans(
    {
        **{character: f"\\{character}" for character in "_%&#${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\n": " ",
        "\r": " ",
    }
)


def list_columns(
    wanted: Sequence[ColumnParams], schema: Schema, visibility: Sequence[bool]
) -> dict[_ColumnName, str]:
    """Return the titles of the visible columns, by hyperparameter or metric.

    The flags are for the columns of the request, in the order of the page. A request without
    columns gets those of the experiment, as in the stock handler.
    """
    titles: dict[_ColumnName, str] = {
        column.name: column.display_name or column.name for column in schema.hparams
    }
    for metric in schema.metrics:
        titles[MetricId(metric.group, metric.tag)] = metric.display_name or metric.tag
    names = [params.column for params in wanted] or list(titles)
    shown = (name for name, is_visible in zip(names, visibility, strict=False) if is_visible)
    return {
        name: titles.get(name, name.tag if isinstance(name, MetricId) else name) for name in shown
    }


def render(
    layout: str, columns: Mapping[_ColumnName, str], groups: Iterable[SessionGroupRow]
) -> bytes:
    """Return the table; `layout` is one of `MEDIA_TYPES`."""
    header = list(columns.values())
    rows = [_row(columns, group) for group in groups]
    if layout == "json":
        return json_answers.dumps_sanitized({"header": header, "rows": rows})
    if layout == "latex":
        return _latex(header, rows).encode()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def _row(columns: Iterable[_ColumnName], group: SessionGroupRow) -> list[_Cell]:
    """Return the cells of a group; a missing hyperparameter is "", a missing metric None."""
    metrics = {value.metric: value.value for value in group.metric_values}
    return [
        metrics.get(name) if isinstance(name, MetricId) else group.hparams.get(name, "")
        for name in columns
    ]


def _latex(header: Sequence[str], rows: Iterable[Sequence[_Cell]]) -> str:
    lines = [
        r"\begin{table}[tbp]",
        rf"\begin{{tabular}}{{{'l' * len(header)}}}",
        " & ".join(map(_latex_cell, header)) + r" \\ \hline",
        *(" & ".join(map(_latex_cell, row)) + r" \\" for row in rows),
        r"\hline",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_cell(value: _Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value.translate(_LATEX)
    if isinstance(value, bool):
        return f"${value:d}$"
    if math.isnan(value):
        return r"$\mathrm{NaN}$"
    if math.isinf(value):
        return rf"${'-' if value < 0 else '+'}\infty$"
    coefficient, _, exponent = f"{value:.3g}".partition("e")
    return rf"${coefficient}\cdot 10^{{{int(exponent)}}}$" if exponent else f"${coefficient}$"
