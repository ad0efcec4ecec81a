"""Files of sessions: what is written reads back as it was, in memory for one page."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import tracemalloc

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.python39 import zip_strict
from tbupload.errors import OutputError, Unreachable, UsageError
from tbupload.export import session_files
from tbupload.export.session_files import check_file, write_sessions
from tbupload.export.session_table import FIXED_COLUMNS, SessionColumns, iter_columns
from tbupload.export.sessions import Session, SessionPage

UNREADABLE = "\0" if sys.version_info < (3, 11) else ""
"""A character that Python's own CSV reader cannot read."""

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters=UNREADABLE), max_size=8)
VALUES = st.one_of(TEXTS, st.floats(), st.booleans())
METRICS = st.dictionaries(st.tuples(TEXTS, TEXTS), st.floats(), max_size=4)
ROWS = st.lists(st.tuples(st.dictionaries(TEXTS, VALUES, max_size=4), METRICS), max_size=5)


def session(run="s", hparams=None, metrics=None):
    return Session(run, "", None, None, None, None, None, hparams or {}, metrics or {})


def write(rows, path, size=2):
    """Writes sessions in pages of this size."""
    path.unlink(missing_ok=True)
    pages = [
        SessionPage(rows[start : start + size], len(rows)) for start in range(0, len(rows), size)
    ]
    return write_sessions(pages, path, lambda *_: None)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(ROWS)
@example([({}, {("a", "b/c"): 1.0, ("a/b", "c"): 2.0, ("", "a/b/c"): 3.0})])
def test_files_of_any_values_read_back_same(tmp_path, rows):
    sessions = [session(f"{index}", *row) for index, row in enumerate(rows)]
    columns = SessionColumns()
    cells = list(iter_columns(columns, [columns.add(each) for each in sessions]))
    assert len(set(columns.names)) == len(columns.names)
    expected = [list(map(shown, column)) for column in cells]

    for suffix in (".csv", ".parquet", ".json"):
        summary = write(sessions, tmp_path / f"t{suffix}")
        assert (summary.sessions, summary.columns) == (len(rows), len(columns.names))
        assert summary.bytes == (tmp_path / f"t{suffix}").stat().st_size

    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names == columns.names
    assert [list(map(shown, column.to_pylist())) for column in table.columns] == expected

    header, *lines = csv.reader(io.StringIO((tmp_path / "t.csv").read_bytes().decode(), newline=""))
    assert header == columns.names
    as_text = [["" if value is None else value for value in column] for column in expected]
    assert [list(line) for line in zip_strict(*lines)] == (as_text if lines else [])

    objects = json.loads((tmp_path / "t.json").read_bytes())
    for each, (hparams, _) in zip_strict(objects, rows):
        for name, value in hparams.items():
            assert json_shown(each[f"hparams.{name}"]) == json_shown(value)


def shown(value):
    """A value as text, None for missing."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def json_shown(value):
    return shown(value) if isinstance(value, float) and not math.isfinite(value) else value


def test_csv_tells_empty_from_missing_and_quotes_spaces(tmp_path):
    write([session("a", {"x": "", "y": " b"}), session("c")], tmp_path / "t.csv")
    fixed = ",".join(FIXED_COLUMNS)
    assert (tmp_path / "t.csv").read_text() == (
        f'{fixed},hparams.x,hparams.y\na,"",,,,,,""," b"\nc,"",,,,,,,\n'
    )


def test_files_need_memory_of_page_only(tmp_path):
    rows, page = 2_000, 125
    names = [f"h{index}" for index in range(10)]

    def pages():
        for start in range(0, rows, page):
            yield SessionPage(
                [
                    session(f"{run}", dict.fromkeys(names, 0.5))
                    for run in range(start, start + page)
                ],
                rows,
            )

    for suffix in (".csv", ".json"):
        tracemalloc.start()
        write_sessions(pages(), tmp_path / f"t{suffix}", lambda *_: None)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 19  # all sessions at once take twice as much


def test_over_limit_of_columns_is_error_and_json_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(session_files, "COLUMNS_MAX", 9)
    rows = [session("a", {"x": 1.0, "y": 2.0}), session("b", {"z": 1.0})]
    for suffix in (".csv", ".parquet"):
        with pytest.raises(OutputError, match=r"over 9 columns.*\.json"):
            write(rows, tmp_path / f"t{suffix}")
    assert list(tmp_path.iterdir()) == []
    assert write(rows, tmp_path / "t.json").columns == 10


def test_pages_that_break_off_leave_no_file(tmp_path):
    def pages():
        yield SessionPage([session("a")], 2)
        raise Unreachable("gone")

    for suffix in (".csv", ".parquet", ".json"):
        with pytest.raises(Unreachable):
            write_sessions(pages(), tmp_path / f"t{suffix}", lambda *_: None)
    assert list(tmp_path.iterdir()) == []


def test_two_exports_at_once_do_not_mix(tmp_path, monkeypatch):
    def pages(run, then):
        yield SessionPage([session(run)], 1)
        then()

    def write_other():
        monkeypatch.setattr("os.getpid", lambda: 1)
        write_sessions(pages("other", lambda: None), tmp_path / "t.json", lambda *_: None)

    write_sessions(pages("one", write_other), tmp_path / "t.json", lambda *_: None)
    assert [row["run"] for row in json.loads((tmp_path / "t.json").read_bytes())] == ["one"]


def test_parquet_rows_are_groups_of_bounded_size(tmp_path, monkeypatch):
    import pandas as pd  # noqa: PLC0415 - slow, and every process of xdist imports this module

    monkeypatch.setattr(session_files, "_CELLS_PER_GROUP", 16)
    write([session(f"{run}", {"x": 1.0}) for run in range(5)], tmp_path / "t.parquet")
    assert pq.read_metadata(tmp_path / "t.parquet").num_row_groups == 3
    assert pd.read_parquet(tmp_path / "t.parquet")["run"].tolist() == list("01234")


def test_file_with_other_suffix_or_existing_is_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"must end with \.csv, \.parquet, \.json"):
        check_file(tmp_path / "t.xlsx")
    (tmp_path / "t.csv").write_text("x")
    with pytest.raises(UsageError, match="exists"):
        check_file(tmp_path / "t.csv")
    check_file(tmp_path / "new.csv")
