"""The command `tbupload runs`: the runs of a workspace as a table."""

from __future__ import annotations

import argparse
import csv
import io
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tbupload.commands.connect import make_transport
from tbupload.commands.options.runs import RUNS_DEFAULT
from tbupload.commands.run_changes import change_runs, is_change
from tbupload.console.columns import Column, ColumnLayout, display_width, terminal_columns
from tbupload.console.output import print_json, print_line, print_message
from tbupload.console.texts import wall_time_text
from tbupload.http.response_schema import Json
from tbupload.http.run_table import RunTableCalls, find_workspace_id
from tbwire.document_tables import latex_lines, markdown_lines
from tbwire.mean_text import format_mean, format_short

_WIDTH_MAX: Final = 24
"""Width of a column but the last."""

_LAYOUT_ROWS: Final = 100
"""Rows that the widths of the columns are made for."""


def list_runs(options: argparse.Namespace) -> int:
    """Run `tbupload runs`: print a header and one line per run, as the pages arrive."""
    transport = make_transport(options)
    calls = RunTableCalls(transport, options.workspace or find_workspace_id(transport))
    if is_change(options):
        return change_runs(options, calls)
    if options.list_columns:
        return _list_columns(calls, options)
    is_all = options.json or options.csv or options.format is not None
    limit = (options.limit if options.limit is not None else 0 if is_all else RUNS_DEFAULT) or (
        sys.maxsize
    )
    pages = calls.read_pages(
        options.where,
        options.sort or (),
        _split(options.columns or ()),
        count_max=limit + 1,
        group_by=_split(options.group_by or ()),
        run_pattern=options.run_pattern,
    )
    first = next(pages)
    runs = itertools.chain(first["runs"], (run for page in pages for run in page["runs"]))
    shown = itertools.islice(runs, limit)
    if options.json:
        for run in shown:
            print_json(run)
    elif options.csv:
        _print_csv(first["columns"], shown)
    else:
        columns, rows = _join_means(first, shown)
        if options.format is None:
            _print_table(columns, rows, is_quiet=options.quiet)
        else:
            lines = markdown_lines if options.format == "markdown" else latex_lines
            for line in lines(columns, ([_short(row, name) for name in columns] for row in rows)):
                print_line(line)
    if not options.quiet:
        _print_notes(first, is_cut=next(runs, None) is not None, limit=limit)
    return 0


def _join_means(first: Json, runs: Iterator[Json]) -> tuple[list[str], Iterator[Json]]:
    """Return columns and rows for people: of groups, each mean with its deviation as one text."""
    grouped = first.get("grouped")
    if not grouped:
        return first["columns"], runs
    of: Sequence[str] = grouped["of"]

    def join(row: Json) -> Json:
        return {**row, **{name: _format_mean(row, name) for name in of}}

    return [*grouped["by"], "runs", *of], map(join, runs)


def _format_mean(row: Json, name: str) -> str:
    mean, std, count = (row.get(f"{name}.{suffix}") for suffix in ("mean", "std", "count"))
    if not isinstance(count, int) or isinstance(mean, str) or isinstance(std, str):
        return _text(mean)  # infinite: the sum is over the range of numbers
    return format_mean(mean, std, count)


def _print_notes(first: Json, *, is_cut: bool, limit: int) -> None:
    if is_cut:
        print_message(f"{limit:,} of {first['total']:,} shown; --limit 0 shows all")
    elif not first["total"]:
        print_message("there are no runs like that")
    if first["pending"]:
        print_message(
            f"the minimum and maximum of {first['pending']:,} series are still computed: they are "
            "missing; run the command again later"
        )
    if first["left_out"]:
        print_message(
            "there are more experiments than the table has: select others with "
            "--where 'experiment = \"ID\"'"
        )


def _list_columns(calls: RunTableCalls, options: argparse.Namespace) -> int:
    """Print the columns: one per line with its kind, and how many runs have it."""
    available = next(calls.read_pages(options.where, (), ("run",), count_max=1, available=True))[
        "available"
    ]
    if options.json:
        print_json(available)
        return 0
    for name in available["run"]:
        print_line(f"run  {name}")
    for kind, counts in (("hparam", available["hparams"]), ("metric", available["metrics"])):
        for name, count in counts.items():
            print_line(f"{kind}  {name}  {count}")
    for name, count in available.get("packages", {}).items():  # an older server names none
        print_line(f"package  package.{name}  {count}")
    return 0


def _split(lists: Sequence[str]) -> list[str]:
    """Return the names of comma-separated lists; a comma within backticks is part of a name."""
    names = [name.strip() for text in lists for name in re.findall(r"(?:`[^`]*`|[^,`])+", text)]
    return [re.sub(r"^`([^`]*)`", r"\1", name) for name in names if name]


def _print_csv(columns: Sequence[str], runs: Iterator[Json]) -> None:
    print_line(_csv_line(columns))
    for run in runs:
        print_line(_csv_line([_text(run.get(name)) for name in columns]))


def _csv_line(fields: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _print_table(columns: Sequence[str], runs: Iterator[Json], *, is_quiet: bool) -> None:
    head = list(itertools.islice(runs, _LAYOUT_ROWS))
    if not head:
        return
    cells = [[_short(run, name) for name in columns] for run in head]
    layout = ColumnLayout(
        [
            Column(
                name,
                name,
                min(_WIDTH_MAX, max(display_width(row[i]) for row in [list(columns), *cells])),
                is_right=all(not isinstance(run.get(name), str) for run in head),
            )
            for i, name in enumerate(columns)
        ],
        [name for name in columns[:-1] if name != "run"],
        terminal_columns(),
    )
    if not is_quiet:
        print_line(layout.header())
    for run in itertools.chain(head, runs):
        print_line(layout.line({name: _short(run, name) for name in columns}), is_escaped=True)


def _short(row: Json, name: str) -> str:
    """Return a value for people: times to the minute in local time, short numbers."""
    value = row.get(name)
    if isinstance(value, float) and name == "started":
        return wall_time_text(value, "%Y-%m-%d %H:%M")
    if isinstance(value, float):
        return f"{format_short(value)} s" if name == "duration" else format_short(value)
    return _text(value).replace("\n", ", ")


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)
