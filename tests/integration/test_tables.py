"""Tables of what an experiment holds besides its points: the same rows in each format, and as DuckDB,
pandas, polars and fastparquet read them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math

import pyarrow as pa
import pytest

from support.batches import images, metadata, scalars, segment, stream, texts
from support.event_files import PNG
from support.hparams import end, start, summary
from support.hparams import metric as metric_info
from support.table_readers import CSV, PARQUET, comparable_rows, csv_texts, flat
from tbservice.api.v1.experiments import table_contents, tables
from tbservice.errors import NotFound
from tbservice.hparams.session_columns import iter_hparams, open_session_columns
from tbservice.reading.source import ExperimentReader
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbwire.tensorboard_pb2 import SummaryMetadata

TABLES = ("experiment", "properties", "uploads", "runs", "series", "sessions", "hparams", "blobs")
ODD = '=cmd|"a", b\nc\r\nd \u202e ü 🙂 '
EVERYTHING = {
    "name": f"name {ODD}",
    "description": f"description {ODD}",
    "notes": "# Notes\n\n| a | b |\n" + ODD,
    "tags": ["baseline", 'quo"ted'],
    "properties": {"lr": "0.1", ODD: ODD, "empty": "", "null": "null", "nan": "NaN"},
    "origin": {"host": "a", "command": 'python "x y".py'},
}


UPLOAD = {
    "origin": {"host": 'ü, "a"', "command": "x"},
    "packages": ["numpy==2.0", "a,b==1"],
    "status_of": "training",
    "started_at": "2026-01-02T03:04:05.678901Z",
}


def write(api, experiment_id, run, *series, at=None):
    """Write series as one event file of a run that begins at `at`."""
    sent = segment(stream(run, f"events.{run}"), 0, 1, *series)
    if at is not None:
        sent.run_start_time = at
    api.write(experiment_id, sent)


@pytest.fixture
def api(shared_api):
    return shared_api


@pytest.fixture(scope="module")
def experiment_id(shared_api):
    return new_experiment(shared_api)


def new_experiment(api):
    """An experiment with something of all that is stored."""
    experiment_id = api.new_experiment(**EVERYTHING)
    far = [-(2**63), -5, 0, 127, 128, 2**40, 2**63 - 1]  # which fastparquet reads as PLAIN only
    described = scalars("loss", range(3), [math.nan, -0.0, 1 / 3])
    described.summary_metadata = metadata(description=ODD, content=b"\0\xff\x80content")
    write(api, experiment_id, "a", described, scalars("far", far), at=1_700_000_000.25)
    write(
        api,
        experiment_id,
        ODD,
        texts(ODD, [1], [ODD.encode()]),
        images("image", [1, 2, 3], [[PNG, b"other"], [], [PNG]]),
    )
    hparams = {"mixed": 1, "flag": True, "none": None, "empty": "", "é\n,": ODD, "number": -0.0}
    write(
        api,
        experiment_id,
        "session/1",
        start(hparams, group_name=ODD, start_time_secs=5.5, model_uri="m", monitor_url="u"),
        end("STATUS_FAILURE", 9.5),
        scalars("loss", [1, 2], [3.0, math.inf]),
    )
    write(api, experiment_id, "session/1/eval", scalars(ODD, [1], [0.25]))
    write(api, experiment_id, "session/2", start({"mixed": True, "number": math.nan, "LR": 1}))
    write(api, experiment_id, "session/3", start({"mixed": "1.0", "number": 1e300, "lr": 2}))
    write(api, experiment_id, "session/4", start({}), end("STATUS_SUCCESS"))
    path = f"/experiments/{experiment_id}/uploads/0123456789abcdef"
    answer = api.request("PUT", path, json=UPLOAD)
    assert answer.status_code == 204, answer.text
    return experiment_id


def read(api, experiment_id, table, **query):
    """Return the rows of a table, as the Arrow format has them."""
    path = f"/experiments/{experiment_id}/tables/{table}"
    answer = api.request("GET", path, params={"format": "arrow", **query})
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_stream(answer.content).read_all().to_pylist()


@pytest.fixture
def save(api, tmp_path):
    """Save a table in a format, and return its path."""

    def save(experiment_id, table, format_):
        path = tmp_path / f"{table}.{format_}"
        answer = api.request(
            "GET", f"/experiments/{experiment_id}/tables/{table}", params={"format": format_}
        )
        assert answer.status_code == 200, answer.text
        path.write_bytes(answer.content)
        return path

    return save


def test_tables_are_read_alike_by_every_library(api, experiment_id, save):
    for table in TABLES:
        rows = read(api, experiment_id, table)
        assert rows, table
        path = save(experiment_id, table, "parquet")
        for library, reads in PARQUET.items():
            assert comparable_rows(renamed(rows, reads(path), library)) == comparable_rows(rows), (
                library
            )
        path = save(experiment_id, table, "csv")
        for library, reads in CSV.items():
            assert renamed(rows, reads(path), library) == csv_texts(rows), library


def renamed(expected, rows, library):
    """Rename the columns that a library renames.

    DuckDB ignores case, so `hparams.lr` beside `hparams.LR` is `hparams.lr_1`; polars keeps quotes
    in the header of a CSV file doubled.
    """
    if library not in {"duckdb", "polars"}:
        return rows
    return [dict(zip(expected[0], row.values(), strict=True)) for row in rows]


def test_tables_of_empty_experiment_have_header(api, save):
    for table in TABLES:
        experiment_id = api.new_experiment()
        path = save(experiment_id, table, "parquet")
        columns = PARQUET["pyarrow"](path)
        assert len(columns) == (table == "experiment"), table
        header = save(experiment_id, table, "csv").read_text().splitlines()[0].split(",")
        assert header == pa.parquet.read_schema(path).names, table
        for library, reads in PARQUET.items():
            assert len(reads(path)) == (table == "experiment"), library


def test_experiment_table_has_metadata(api, experiment_id):
    (row,) = read(api, experiment_id, "experiment")
    shown = api.request("GET", f"/experiments/{experiment_id}").json()
    for name in ("experiment_id", "url", "name", "description", "notes", "tags", "visibility"):
        assert row[name] == shown[name], name
    assert row["created_at"][:19] == shown["created_at"][:19]
    assert row["created_at"].endswith("+00:00")
    assert row["points"] == shown["points"]
    pairs = read(api, experiment_id, "properties")
    for kind, name in (("property", "properties"), ("origin", "origin")):
        stored = {pair["name"]: pair["value"] for pair in pairs if pair["kind"] == kind}
        assert stored == EVERYTHING[name]


def test_uploads_table_has_records(api, experiment_id):
    (row,) = read(api, experiment_id, "uploads")
    assert (row["upload_id"], row["status"]) == ("0123456789abcdef", "running")
    assert json.loads(row["origin"]) == UPLOAD["origin"]
    assert row["packages"] == UPLOAD["packages"]
    assert row["started_at"] == "2026-01-02T03:04:05.678901+00:00"
    assert row["ended_at"] is None


def test_series_table_has_summary_metadata(api, experiment_id):
    rows = {(row["run"], row["tag"]): row for row in read(api, experiment_id, "series")}
    loss = rows["a", "loss"]
    assert (loss["plugin"], loss["data_class"], loss["description"]) == ("scalars", "scalar", ODD)
    assert loss["plugin_content"] == b"\0\xff\x80content"
    parsed = SummaryMetadata.FromString(loss["summary_metadata"])
    assert parsed.plugin_data.content == loss["plugin_content"]
    assert (loss["points"], loss["max_step"], loss["max_wall_time"]) == (3, 2, 1.7e9 + 2)
    listed = api.get(experiment_id, "tensors")["session/1"]["_hparams_/session_start_info"]
    content = rows["session/1", "_hparams_/session_start_info"]["plugin_content"]
    assert base64.b64encode(content).decode() == listed["summary_metadata"]["content"]


def test_series_table_is_selected_as_points_are(api, experiment_id, monkeypatch):
    monkeypatch.setattr("tbservice.api.v1.experiments.table_contents._SERIES_PER_PAGE", 2)
    every = read(api, experiment_id, "series")
    assert len({(row["run"], row["tag"]) for row in every}) == len(every) > 6
    for query, expected in (
        ({"run": "a"}, {("a", "loss"), ("a", "far")}),
        ({"tag": "loss"}, {("a", "loss"), ("session/1", "loss")}),
        ({"plugin": "images"}, {(ODD, "image")}),
        ({"data_class": "blob_sequences"}, {(ODD, "image")}),
        ({"run": "a", "data_class": "tensors"}, set()),
        ({"run": "nothing"}, set()),
    ):
        selected = read(api, experiment_id, "series", **query)
        assert {(row["run"], row["tag"]) for row in selected} == expected, query


def test_tables_of_deleted_experiment_are_cut_off(api, database, monkeypatch):
    """In the middle, or before anything was read: none is a shorter table."""
    experiment_id = new_experiment(api)
    upload = f"/experiments/{experiment_id}/uploads/abcdef0123456789"
    api.request("PUT", upload, json=UPLOAD).raise_for_status()
    workspace_id = api.request("GET", "/me").json()["workspace"]["workspace_id"]
    monkeypatch.setattr("tbservice.api.v1.experiments.table_contents._SERIES_PER_PAGE", 1)
    monkeypatch.setattr("tbservice.hparams.session_columns._ROWS_PER_CHUNK_MAX", 1)
    monkeypatch.setattr("tbservice.limits.UPLOADS_PAGE_ITEMS_MAX", 1)
    grant = ReadGrant(workspace_id, experiment_id)
    reader = ExperimentReader(grant, database, None)
    begun = [
        iter(table_contents.series_table(database, grant, Selection()).batches),
        tables._iter_uploads(grant, database),
        open_session_columns(reader).read_chunks(),
    ]
    for rows in begun:
        assert next(rows)
    api.request("DELETE", f"/experiments/{experiment_id}").raise_for_status()
    for rows in (*begun, iter_hparams(reader)):
        with pytest.raises(NotFound):
            list(rows)
    with pytest.raises(NotFound):
        tables.read_runs_table(grant, tables.RunsTableQuery(), database)


def test_runs_table_has_runs_without_series(api):
    experiment_id = new_experiment(api)
    write(api, experiment_id, "empty", at=12.5)
    rows = {row["run"]: row["start_time"] for row in read(api, experiment_id, "runs")}
    assert rows == {run["run"]: run["start_time"] for run in api.get(experiment_id, "runs")["runs"]}
    assert rows["empty"] == 12.5
    assert read(api, experiment_id, "runs", run="a") == [
        {"run": "a", "start_time": 1.70000000025e9}
    ]


def test_sessions_table_has_hparams_metrics_and_statuses(api, experiment_id):
    rows = {row["run"]: row for row in read(api, experiment_id, "sessions")}
    assert list(rows) == [f"session/{number}" for number in (1, 2, 3, 4)]
    first = rows["session/1"]
    assert first["group"] == ODD
    assert (first["status"], first["start_time"], first["end_time"]) == ("failure", 5.5, 9.5)
    assert (first["model_uri"], first["monitor_url"]) == ("m", "u")
    assert [row["hparams.mixed"] for row in rows.values()] == ["1.0", "true", "1.0", None]
    assert [repr(row["hparams.number"]) for row in rows.values()] == [
        "-0.0",
        "nan",
        "1e+300",
        "None",
    ]
    assert (first["hparams.flag"], first["hparams.empty"]) == (True, "")
    assert first["hparams.é\n,"] == ODD
    assert "hparams.none" not in first
    assert (rows["session/2"]["hparams.LR"], rows["session/3"]["hparams.lr"]) == (1.0, 2.0)
    assert (first["metrics.loss"], first[f"metrics.eval/{ODD}"]) == (math.inf, 0.25)
    assert rows["session/4"]["status"] == "success"
    assert rows["session/2"]["status"] is None


def test_hparams_table_has_types_of_mixed_columns(api, experiment_id):
    rows = [row for row in read(api, experiment_id, "hparams") if row["name"] == "mixed"]
    assert [tuple(row.values()) for row in rows] == [
        ("session/1", "mixed", "number", 1.0, None, None),
        ("session/2", "mixed", "bool", None, None, True),
        ("session/3", "mixed", "string", None, "1.0", None),
    ]


def test_sessions_table_in_chunks_is_same_table(api, monkeypatch):
    experiment_id = new_experiment(api)
    for number in (2, 3):
        loss = scalars("loss", [1], [float(number)])
        api.write(experiment_id, segment(stream(f"session/{number}", "later"), 0, 1, loss))
    whole = read(api, experiment_id, "sessions")
    assert [row["metrics.loss"] for row in whole] == [math.inf, 2.0, 3.0, None]
    for rows in (1, 2, 3):
        monkeypatch.setattr("tbservice.hparams.session_columns._ROWS_PER_CHUNK_MAX", rows)
        assert comparable_rows(read(api, experiment_id, "sessions")) == comparable_rows(whole), rows


def test_sessions_table_without_sessions_has_runs_of_summary(api):
    experiment_id = api.new_experiment()
    declared = summary(metrics=[metric_info("loss", "")])
    write(api, experiment_id, "a", declared, scalars("loss", [1], [2.0]))
    (row,) = read(api, experiment_id, "sessions")
    assert (row["run"], row["metrics.loss"]) == ("a", 2.0)


def test_sessions_table_over_column_limit_keeps_sessions(api, experiment_id, monkeypatch):
    columns = len(read(api, experiment_id, "sessions")[0])
    monkeypatch.setattr("tbservice.hparams.session_columns.SESSION_TABLE_COLUMN_ITEMS_MAX", columns)
    assert len(read(api, experiment_id, "sessions")[0]) == columns
    monkeypatch.setattr(
        "tbservice.hparams.session_columns.SESSION_TABLE_COLUMN_ITEMS_MAX", columns - 1
    )
    rows = read(api, experiment_id, "sessions")
    assert len(rows[0]) == 7
    assert [row["status"] for row in rows] == ["failure", None, None, "success"]
    assert len(read(api, experiment_id, "hparams")) > columns - 10


def test_metrics_of_equal_names_are_two_columns(api):
    experiment_id = api.new_experiment()
    write(api, experiment_id, "s", start({"x": 1}))
    write(api, experiment_id, "s/a", scalars("b/c", [1], [1.0]))
    write(api, experiment_id, "s/a/b", scalars("c", [1], [2.0]))
    (row,) = read(api, experiment_id, "sessions")
    metrics = {name: value for name, value in row.items() if name.startswith("metrics.")}
    assert metrics == {"metrics.a/b/c": 1.0, "metrics.a/b/c [a/b]": 2.0}


def test_blobs_table_has_row_per_blob(api, experiment_id):
    rows = read(api, experiment_id, "blobs")
    assert [(row["step"], row["index"]) for row in rows] == [(1, 0), (1, 1), (3, 0)]
    first = rows[0]
    digest = hashlib.sha256(PNG).hexdigest()
    assert (first["sha256"], first["size"], first["content_type"]) == (
        digest,
        len(PNG),
        "image/png",
    )
    assert first["file"] == f"files/{digest[:2]}/{digest}.png"
    assert rows[2]["file"] == first["file"]
    assert rows[1]["file"].endswith(".bin")
    assert api.request("GET", f"/blobs/{first['key']}").content == PNG


def test_tables_of_unknown_name_or_format_are_refused(api, experiment_id):
    base = f"/experiments/{experiment_id}/tables"
    assert api.request("GET", f"{base}/nothing").status_code == 404
    assert api.request("GET", f"{base}/runs", params={"format": "xlsx"}).status_code == 422
    assert api.request("GET", f"{base}/runs", params={"tag": "x"}).status_code == 422
    assert api.request("GET", f"{base}/series", params={"data_class": "x"}).status_code == 422


@pytest.mark.parametrize("sampling", ["all", "uniform"])
def test_points_come_with_summary_metadata(api, experiment_id, tmp_path, sampling):
    for kind in ("scalars", "tensors", "blob_sequences"):
        path = f"/experiments/{experiment_id}/{kind}/data"
        query = {"metadata": "true", "sampling": sampling}
        listed = api.get(experiment_id, kind)
        by_json = api.request("GET", path, params=query).json()
        assert by_json.keys() == listed.keys(), kind
        for run, tags in by_json.items():
            for tag, columns in tags.items():
                assert columns["summary_metadata"] == listed[run][tag]["summary_metadata"], (
                    run,
                    tag,
                )
        bare = api.request("GET", path, params={"sampling": sampling}).json()
        for run, tags in bare.items():
            for tag, columns in tags.items():
                assert columns == {
                    name: value
                    for name, value in by_json[run][tag].items()
                    if name != "summary_metadata"
                }, kind
        for format_, readers in (("parquet", PARQUET), ("csv", CSV)):
            answer = api.request("GET", path, params={**query, "format": format_})
            file = tmp_path / f"points.{format_}"
            file.write_bytes(answer.content)
            for library, reads in readers.items():
                for row in reads(file):
                    stored = listed[row["run"]][row["tag"]]["summary_metadata"]
                    content = row["plugin_content"]
                    content = (
                        base64.b64encode(content).decode() if format_ == "parquet" else content
                    )
                    assert [row["plugin"], row["display_name"] or "", row["description"] or ""] == [
                        stored[name] for name in ("plugin", "display_name", "description")
                    ], library
                    assert content == stored["content"], library


def test_series_of_hparams_plugin_are_among_tensors(api, experiment_id):
    data = api.get(experiment_id, "tensors/data", plugin="hparams", metadata="true")
    assert set(data) == {f"session/{number}" for number in (1, 2, 3, 4)}
    for tags in data.values():
        sample = tags["_hparams_/session_start_info"]
        assert sample["kept"] == 1
        assert json.loads(json.dumps(sample))["summary_metadata"]["plugin"] == "hparams"


def test_csv_metadata_of_long_series_is_bounded(api, monkeypatch):
    experiment_id = api.new_experiment()
    loss = scalars("loss", range(300))
    loss.summary_metadata = metadata(content=b"x" * 3_000)
    write(api, experiment_id, "a", loss)
    monkeypatch.setattr("tbservice.api.formats.csv_format._METADATA_CHARS_PER_PART", 10_000)
    path = f"/experiments/{experiment_id}/scalars/data"
    query = {"metadata": "true", "sampling": "all", "format": "csv"}
    lines = api.request("GET", path, params=query).text.splitlines()
    assert [line.split(",")[2] for line in lines[1:]] == [str(step) for step in range(300)]
    assert {len(line) > 4_000 for line in lines[1:]} == {True}


def test_points_of_each_class_are_read_by_every_library(api, experiment_id, tmp_path):
    for kind in ("scalars", "tensors", "blob_sequences"):
        path = f"/experiments/{experiment_id}/{kind}/data"
        answer = api.request("GET", path, params={"format": "parquet", "sampling": "all"})
        file = tmp_path / f"{kind}.parquet"
        file.write_bytes(answer.content)
        rows = PARQUET["pyarrow"](file)
        assert rows
        for library, reads in PARQUET.items():
            expected = [flat(row) for row in rows] if library == "fastparquet" else rows
            got = [{name: row[name] for name in expected[0] if name in row} for row in reads(file)]
            expected = [{name: row[name] for name in got[0]} for row in expected]
            assert comparable_rows(got) == comparable_rows(expected), (kind, library)
