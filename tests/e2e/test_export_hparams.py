"""`tbupload export --hparams` and `Experiment.hparams()`: the table of sessions, of real files and of
hostile ones, as the server's HParams API has it.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from support.batches import ApiClient
from support.hparams import STATUSES, HparamsClient, last, start
from support.lazy import LazyModule
from support.subprocesses import run_to_end
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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_hparams_frame_has_type_of_column_without_values(client, library):
    client.write("a", start({"x": 1}))
    frame = Experiment(client.experiment_id).hparams(library=library)
    assert str(frame["start_time"].dtype).lower() == "float64"
    assert frame["start_time"].sum() == 0
    if library == "polars":
        assert [str(frame[name].dtype) for name in ("status", "model_uri")] == ["String"] * 2


def test_experiment_without_sessions_is_table_without_rows(client, export):
    client.write("a", last("loss", 1.0))
    assert json.loads(export(client.experiment_id, ".json").read_bytes()) == []
    assert export(client.experiment_id, ".csv").read_text() == ",".join(FIXED) + "\n"
    table = pq.read_table(export(client.experiment_id, ".parquet"))
    assert (table.num_rows, table.column_names) == (0, FIXED)
    assert list(Experiment(client.experiment_id).hparams().columns) == FIXED


def paging(client, monkeypatch):
    """Yields the names of each page of sessions; the caller may write in between."""
    monkeypatch.setattr(sessions, "SESSIONS_PER_PAGE", 2)
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


def test_parquet_without_pyarrow_is_clear_error(uploader, client, tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None\nfrom tbupload.cli import main\n"
    options = ["export", "--experiment", client.experiment_id, "--hparams", f"{tmp_path}/t.parquet"]
    ended = run_to_end(
        [sys.executable, "-c", f"{script}sys.exit(main({options!r}))"], env=uploader.environment()
    )
    assert (ended.returncode, "pip install pyarrow" in ended.stderr) == (2, True), ended.stderr
