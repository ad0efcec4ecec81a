"""`tbupload export --hparams` and `Experiment.hparams()`: the table of sessions, of real files and of
hostile ones, as the server's HParams API has it.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.batches import ApiClient
from support.hparams import STATUSES, HparamsClient, end, last, start
from support.lazy import LazyModule
from tbupload import Experiment
from tbupload.export import sessions

pd = LazyModule("pandas")

pytestmark = pytest.mark.usefixtures("configured")

FILES = Path(__file__).parent.parent / "data"
WRITERS = ("tensorboard_plugins", "pytorch", "tensorboardx")
FIXED = ["run", "group", "status", "start_time", "end_time", "model_uri", "monitor_url"]
STATUS_NAMES = dict(zip(STATUSES, (None, "success", "failure", "running"), strict=True))


@pytest.fixture
def client(uploader, reader):
    """A new experiment of the uploader's workspace."""
    return HparamsClient(ApiClient(reader.http, uploader.token))


@pytest.fixture
def export(uploader, tmp_path):
    """Exports the sessions of an experiment to a file, which must succeed, and returns its path."""

    def export(experiment_id, suffix, *more):
        path = tmp_path / "tables" / f"sessions{suffix}"
        ended = uploader.run("export", "--experiment", experiment_id, "--hparams", path, *more)
        assert ended.code == 0, ended.err
        assert ended.out == f"{path}\n"
        assert [each.name for each in path.parent.glob("*tbhub*")] == []
        return path

    return export


def read_csv(path):
    """The header, and each row as its fields that are not empty by column."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return header, [
        {name: text for name, text in zip(header, row, strict=True) if text} for row in rows
    ]


def rows_of(frame):
    """A frame's rows as dictionaries without missing values; NaN as text."""
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in frame.astype(object).where(frame.notna(), None).to_dict("records")
    ]


def expected_rows(client):
    """The sessions as the API's stock requests have them, for groups of one session."""
    rows = []
    for group in client.list()["sessionGroups"]:
        (session,) = group["sessions"]
        row = {
            "run": session["name"],
            "group": "" if group["name"] == session["name"] else group["name"],
            "status": STATUS_NAMES[session["status"]],
            "start_time": session["startTimeSecs"] or None,
            "end_time": session["endTimeSecs"] or None,
            "model_uri": session["modelUri"] or None,
            "monitor_url": session["monitorUrl"] or None,
        }
        row |= {f"hparams.{name}": value for name, value in group["hparams"].items()}
        for metric in session["metricValues"]:
            name = "/".join(filter(None, metric["name"].values()))
            row[f"metrics.{name}"] = metric["value"]
        rows.append({name: value for name, value in row.items() if value is not None})
    return sorted(rows, key=lambda row: row["run"])


@pytest.mark.parametrize("writer", WRITERS)
def test_files_of_real_writers_are_tables_as_api_has_them(uploader, reader, export, writer):
    uploaded = uploader.run("--logdir", FILES / writer / "hparams", "--one-shot")
    client = HparamsClient(ApiClient(reader.http, uploader.token), uploaded.experiment_id)
    expected = expected_rows(client)
    assert len(expected) >= 2
    assert any(name.startswith("hparams.") for name in expected[0])
    assert any(name.startswith("metrics.") for name in expected[0])

    assert json.loads(export(client.experiment_id, ".json").read_bytes()) == expected
    parquet = pd.read_parquet(export(client.experiment_id, ".parquet"))
    assert rows_of(parquet) == expected
    frame = Experiment(client.experiment_id).hparams()
    assert rows_of(frame) == expected
    assert list(frame.columns) == list(parquet.columns)
    assert list(frame.columns)[: len(FIXED)] == FIXED

    header, rows = read_csv(export(client.experiment_id, ".csv"))
    assert header == list(parquet.columns)
    as_text = [
        {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in row.items()
            if value != ""
        }
        for row in expected
    ]
    assert rows == as_text


def test_sessions_of_group_keep_their_own_hparams(client, export):
    client.write("a", start({"lr": 1, "same": "x"}, group_name="g"), last("loss", 0.5))
    client.write("b", start({"lr": 2, "same": "x"}, group_name="g"), end("STATUS_FAILURE", 9.0))
    client.write("b/eval", last("loss", 0.25))
    client.write("c", last("loss", 7.0))
    rows = json.loads(export(client.experiment_id, ".json").read_bytes())
    assert [(row["run"], row["group"], row["hparams.lr"]) for row in rows] == [
        ("a", "g", 1.0),
        ("b", "g", 2.0),
    ]
    assert rows[1]["status"], rows[1]["end_time"] == ("failure", 9.0)
    assert rows[0]["metrics.loss"] == 0.5
    assert rows[1]["metrics.eval/loss"] == 0.25
    assert "metrics.loss" not in rows[1]


def odd_sessions(client):
    """Values of all types, none and not finite; names that break lines, quotes and spreadsheets."""
    long = "n" * 9_000
    client.write(
        "a",
        start(
            {
                "mixed": 1,
                "number": math.nan,
                "flag": True,
                "none": None,
                "empty": "",
                "=1+1": "=cmd|' /C calc'!A1",
                'line\n"quote", comma\r': ' "x",\ny ',
                "word": "NaN",
                long: 1,
            },
            model_uri="gs://model",
            monitor_url="https://monitor",
            start_time_secs=5.5,
        ),
        last("loss", -math.inf),
        last('a\n,"b', 1.0),
    )
    client.write("b", start({"mixed": True, "number": math.inf, "word": "Infinity"}))
    client.write("c", start({"mixed": "x", "number": -0.5}), end("STATUS_SUCCESS", 7.0))
    client.write("d", start({}))
    return long


def test_odd_values_and_names_are_kept_in_every_format(client, export):
    long = odd_sessions(client)
    named = {
        "hparams.=1+1": "=cmd|' /C calc'!A1",
        'hparams.line\n"quote", comma\r': ' "x",\ny ',
        f"hparams.{long}": 1.0,
        'metrics.a\n,"b': 1.0,
    }
    rows = json.loads(export(client.experiment_id, ".json").read_bytes())
    assert named.items() <= rows[0].items()
    assert [row.get("hparams.mixed") for row in rows] == [1.0, True, "x", None]
    assert [row.get("hparams.number") for row in rows] == ["NaN", "Infinity", -0.5, None]
    assert rows[0]["hparams.flag"] is True
    assert "hparams.none" not in rows[0]
    assert rows[0]["hparams.empty"] == ""
    assert (rows[0]["model_uri"], rows[0]["monitor_url"]) == ("gs://model", "https://monitor")
    assert (rows[0]["start_time"], rows[2]["end_time"]) == (5.5, 7.0)

    table = pq.read_table(export(client.experiment_id, ".parquet")).to_pylist()
    assert named.items() <= table[0].items()
    assert [row["hparams.mixed"] for row in table] == ["1.0", "true", "x", None]
    numbers = [row["hparams.number"] for row in table]
    assert math.isnan(numbers[0])
    assert numbers[1:] == [math.inf, -0.5, None]
    assert [row["hparams.word"] for row in table] == ["NaN", "Infinity", None, None]
    assert table[0]["metrics.loss"] == -math.inf
    assert (table[0]["hparams.flag"], table[1]["hparams.flag"]) == (True, None)

    path = export(client.experiment_id, ".csv")
    header, lines = read_csv(path)
    assert {name: str(value) for name, value in named.items()}.items() <= lines[0].items()
    assert [row.get("hparams.mixed") for row in lines] == ["1.0", "true", "x", None]
    assert [row.get("hparams.number") for row in lines] == ["NaN", "Infinity", "-0.5", None]
    assert lines[0]["metrics.loss"] == "-Infinity"
    frame = pd.read_csv(path)  # pandas reads it too, and takes "Infinity" for a number
    assert frame["hparams.number"].tolist()[1:3] == [math.inf, -0.5]
    assert len(header) == len(set(header)) == len(frame.columns)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_hparams_frame_has_type_of_column_without_values(client, library):
    client.write("a", start({"x": 1}))
    frame = Experiment(client.experiment_id).hparams(library=library)
    assert str(frame["start_time"].dtype).lower() == "float64"
    assert frame["start_time"].sum() == 0
    if library == "polars":
        assert [str(frame[name].dtype) for name in ("status", "model_uri")] == ["String"] * 2


def test_metrics_of_same_name_are_columns_of_their_own(client, export):
    client.write("s", start({"x": 1}))
    client.write("s/a", last("b/c", 1.0))
    client.write("s/a/b", last("c", 2.0))
    (row,) = json.loads(export(client.experiment_id, ".json").read_bytes())
    metrics = {name: value for name, value in row.items() if name.startswith("metrics.")}
    assert set(metrics) in (
        {"metrics.a/b/c", "metrics.a/b/c [a/b]"},
        {"metrics.a/b/c", "metrics.a/b/c [a]"},
    )
    assert sorted(metrics.values()) == [1.0, 2.0]


def test_experiment_without_sessions_is_table_without_rows(client, export):
    client.write("a", last("loss", 1.0))
    assert json.loads(export(client.experiment_id, ".json").read_bytes()) == []
    assert export(client.experiment_id, ".csv").read_text() == ",".join(FIXED) + "\n"
    table = pq.read_table(export(client.experiment_id, ".parquet"))
    assert (table.num_rows, table.column_names) == (0, FIXED)
    assert list(Experiment(client.experiment_id).hparams().columns) == FIXED


def paging(client, monkeypatch, size=2):
    """Yields the names of each page of sessions; the caller may write in between."""
    monkeypatch.setattr(sessions, "SESSIONS_PER_PAGE", size)
    experiment = Experiment(client.experiment_id)
    for page in sessions.read_sessions(experiment._transport, client.experiment_id):
        yield [session.run for session in page.sessions]


def test_sessions_changed_meanwhile_lose_and_repeat_none(client, monkeypatch):
    names = [f"{index:02}" for index in range(12)]
    for name in names:
        client.write(name, start({"x": 1}))
    pages = paging(client, monkeypatch)
    listed = next(pages) + next(pages)
    client.write("00a", start({"x": 1}))
    client.write("99", start({"x": 1}))
    for name in listed:
        path = f"/experiments/{client.experiment_id}/runs?run={name}"
        assert client.api.request("DELETE", path).status_code == 204
    for page in pages:
        listed += page
    assert listed == [*names, "99"]


def test_export_hparams_wrong_usage_reads_nothing(uploader, client, tmp_path):
    (tmp_path / "old.csv").write_text("x")
    target = ("--experiment", client.experiment_id)
    for words, options in {
        "--hparams needs --experiment": ("--all", "--hparams", tmp_path / "t.csv"),
        "exists: use another name": (*target, "--hparams", tmp_path / "old.csv"),
        "must end with .csv, .parquet, .json": (*target, "--hparams", tmp_path / "t.txt"),
        "the file's suffix says it": (*target, "--hparams", tmp_path / "t.csv", "--format", "csv"),
        "cannot be used with filters": (
            *target,
            "--hparams",
            tmp_path / "t.csv",
            "--include-runs",
            "x",
        ),
        "not allowed with": (
            *target,
            "--hparams",
            tmp_path / "t.csv",
            "--output",
            tmp_path / "out",
        ),
        "one of the arguments --output --hparams is required": target,
    }.items():
        ended = uploader.run("export", *options)
        assert (ended.code, words in ended.err) == (2, True), ended.err
    assert (tmp_path / "old.csv").read_text() == "x"
    assert not (tmp_path / "t.csv").exists()


def test_export_hparams_json_says_what_was_written(uploader, client, tmp_path):
    client.write("a", start({"x": 1}), last("loss", 1.0))
    path = tmp_path / "t.csv"
    ended = uploader.run(
        "export", "--experiment", client.experiment_id, "--hparams", path, "--json"
    )
    assert ended.done == {
        "event": "done",
        "experiment_id": client.experiment_id,
        "file": str(path),
        "sessions": 1,
        "columns": len(FIXED) + 2,
        "bytes": path.stat().st_size,
    }
    assert "exported 1 sessions: 9 columns" in ended.err


def test_export_hparams_failure_leaves_no_file(uploader, client, tmp_path):
    path = tmp_path / "new" / "t.csv"
    ended = uploader.run("export", "--experiment", "A" * 22, "--hparams", path, "--json")
    assert (ended.code, ended.done["event"]) == (1, "failed")
    assert "there is no experiment " in ended.err
    short = ("--retry-timeout", "0.1", "--server", "http://127.0.0.1:9")
    target = ("--experiment", client.experiment_id)
    assert uploader.run("export", *target, "--hparams", path, *short).code == 75
    (tmp_path / "file").write_text("x")
    ended = uploader.run("export", *target, "--hparams", tmp_path / "file" / "t.csv")
    assert (ended.code, "File exists" in ended.err) == (1, True)
    assert list(tmp_path.glob("**/*t.csv*")) == list(tmp_path.glob("**/.tbhub-export*")) == []


def test_parquet_without_pyarrow_is_clear_error(uploader, client, tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None\nfrom tbupload.cli import main\n"
    options = ["export", "--experiment", client.experiment_id, "--hparams", f"{tmp_path}/t.parquet"]
    ended = subprocess.run(
        [sys.executable, "-c", f"{script}sys.exit(main({options!r}))"],
        env=uploader.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, "pip install pyarrow" in ended.stderr) == (2, True), ended.stderr
