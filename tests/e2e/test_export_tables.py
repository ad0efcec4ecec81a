"""`tbupload export` to Parquet and CSV holds each stored fact: bit by bit, whatever was logged."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from support import event_files
from support.all_writers import NAME, write_files_of_all_writers
from support.batches import ApiClient, scalars, segment, stream
from support.hparams import HparamsClient, start
from support.lazy import LazyModule
from support.source_code import ROOT
from support.table_readers import CSV, PARQUET, comparable, comparable_rows, csv_texts, flat
from tbservice.local.demo import write_demo_logdir
from tbservice.local.demo.sessions import SESSIONS
from tbupload.export.directory_names import MANIFEST
from tbwire import digests, tensors, wire_pb2

duckdb = LazyModule("duckdb")
pd = LazyModule("pandas")
pl = LazyModule("polars")

KINDS = ("scalars", "tensors", "blob_sequences")
TABLES = (
    *("experiment", "properties", "uploads", "runs", "series", "sessions", "hparams", "blobs"),
)
NUMBERS = {name: number for number, name in tensors.NAMES.items()}
CLASSES = {"scalar": "scalars", "tensor": "tensors", "blob_sequence": "blob_sequences"}
HISTOGRAM = {"limits": "bucket_limit", "counts": "bucket"}
ODD_TEXT = '=1+1 "q", b\r\nü 🙂\u202e '
ODD_NAME = ODD_TEXT.replace("\r\n", " ")


@pytest.fixture
def export(uploader, tmp_path):
    """Export an experiment; return the result and the directory."""

    def export(experiment_id, format_="parquet", *more, name=None):
        directory = tmp_path / (name or format_)
        what = ("--experiment", experiment_id, "--format", format_, "--output", directory)
        return uploader.run("export", *what, "--json", *more), directory

    return export


def of_all_types(logdir):
    """Write tensors of each type, with the values that are lost first, of several shapes."""
    odd = [np.nan, np.inf, -np.inf, -0.0]
    arrays = [
        np.array(odd, np.float16),
        np.array([*odd, 1e-45], np.float32).reshape(5, 1),
        np.array([[*odd, 5e-324, 1 / 3]]),
        np.array([-(2**63), 2**63 - 1]),
        np.array(2**64 - 1, np.uint64),
        np.zeros((0, 3), np.int8),
        np.array([True, False]),
        np.array([complex(np.nan, -0.0), 1j], np.complex64),
        np.array([complex(1, np.inf)], np.complex128),
    ]
    protos = [event_files.tensor_proto(array) for array in arrays]
    bfloat16 = event_files.tensor_proto(np.array([0x7FC0, 0x8000, 0x3F80], np.uint16))
    bfloat16.dtype = NUMBERS["bfloat16"]
    protos += [
        bfloat16,
        event_files.string_tensor_proto([b"", b"\xff\0", ODD_TEXT.encode()], (1, 3)),
        event_files.string_tensor_proto([ODD_TEXT.encode()], ()),
    ]
    events = [event_files.plugin_event("odd", "any", step, p) for step, p in enumerate(protos)]
    name = f"odd/{ODD_TEXT.strip()}".replace("\r\n", " ")
    event_files.write_records(logdir / name / NAME, [event_files.version_event(7.25), *events])
    event_files.write_records(logdir / "without series" / NAME, [event_files.version_event(3.5)])


@pytest.fixture
def uploaded(uploader, logdir):
    """An experiment with the files of all real writers, and what none of them wrote."""
    write_files_of_all_writers(logdir)
    of_all_types(logdir)
    ended = uploader.run("--logdir", logdir, "--one-shot", "--name", ODD_NAME)
    assert ended.code == 0, ended.err
    proven = uploader.run("verify", "--logdir", logdir, "--experiment", ended.experiment_id)
    assert proven.code == 0, proven.err
    return ended.experiment_id


def rows_of(directory, table):
    """Return the rows of a table of Parquet files."""
    path = directory / f"{table}.parquet"
    paths = [path] if path.exists() else sorted((directory / table).glob("*.parquet"))
    return [row for each in paths for row in pq.read_table(each).to_pylist()]


def record_digests(directory):
    """Return {(run, tag): digest} of all series, computed from the tables alone."""
    blobs = defaultdict(list)
    for row in rows_of(directory, "blobs"):
        blobs[row["run"], row["tag"], row["step"]].append(row)
    by_series = defaultdict(list)
    for kind in KINDS:
        for row in rows_of(directory, kind):
            by_series[row["run"], row["tag"]].append(row)
    series = {}
    for row in rows_of(directory, "series"):
        key = row["run"], row["tag"]
        digest = digests.SeriesDigest()
        digest.add(records(CLASSES[row["data_class"]], by_series[key], blobs))
        series[key] = {
            "plugin": row["plugin"],
            "data_class": row["data_class"],
            "count": digest.count,
            "first_step": digest.first_step,
            "last_step": digest.last_step,
            "sha256": digest.hexdigest(),
            "metadata_sha256": hashlib.sha256(row["summary_metadata"]).hexdigest(),
        }
    return series


def records(kind, rows, blobs):
    steps, wall_times = [[row[name] for row in rows] for name in ("step", "wall_time")]
    if kind == "scalars":
        return digests.scalar_records(steps, wall_times, [row["value"] for row in rows])
    digest_of = tensor_digest if kind == "tensors" else lambda row: sequence_digest(row, blobs)
    return digests.value_records(steps, wall_times, list(map(digest_of, rows)))


def tensor_digest(row):
    data = row["data"] if row["strings"] is None else tensors.pack_strings(row["strings"])
    histogram = row["histogram"]
    if histogram is not None:
        fields = {HISTOGRAM.get(name, name): value for name, value in histogram.items()}
        histogram = hashlib.sha256(wire_pb2.LegacyHistogram(**fields).SerializeToString()).digest()
    sha256 = hashlib.sha256(data).digest()
    return digests.tensor_digest(NUMBERS[row["dtype"]], row["shape"], sha256, histogram)


def sequence_digest(row, blobs):
    described = blobs.get((row["run"], row["tag"], row["step"]), [])
    assert [blob["key"] for blob in described] == row["keys"]
    sha256s = [bytes.fromhex(blob["sha256"]) for blob in described]
    return digests.blob_sequence_digest(sha256s, row["logged_content_type"])


def server_digests(reader, experiment_id):
    by_series, after = {}, ""
    while after is not None:
        page = reader.get(experiment_id, "digests", after=after)
        for series in page["series"]:
            by_series[series.pop("run"), series.pop("tag")] = series
        after = page["next"]
    return by_series


def test_parquet_export_holds_what_was_logged_bit_by_bit(uploaded, reader, export):
    ended, directory = export(uploaded)
    assert ended.code == 0, ended.err
    known = server_digests(reader, uploaded)
    assert len(known) > 100
    assert record_digests(directory) == known
    runs = {row["run"]: row["start_time"] for row in rows_of(directory, "runs")}
    assert runs == {run["run"]: run["start_time"] for run in reader.get(uploaded, "runs")["runs"]}
    assert runs["without series"] == 3.5
    blobs = rows_of(directory, "blobs")
    assert max(row["size"] for row in blobs) > 1 << 20
    for row in blobs:
        content = (directory / row["file"]).read_bytes()
        assert (hashlib.sha256(content).hexdigest(), len(content)) == (row["sha256"], row["size"])
    files = {path.relative_to(directory).as_posix() for path in directory.glob("files/*/*")}
    assert files == {row["file"] for row in blobs}
    (row,) = rows_of(directory, "experiment")
    assert row["name"] == ODD_NAME
    assert ended.done["files"] == len([*directory.rglob("*.*")]) - 2  # the manifest and the lock


def test_parquet_export_is_read_alike_by_every_library(uploaded, export):
    _, directory = export(uploaded)
    for path in sorted(directory.rglob("*.parquet")):
        rows = pq.read_table(path).to_pylist()
        assert rows or path.stem == "uploads", path
        for library, reads in PARQUET.items():
            expected = [flat(row) for row in rows] if library == "fastparquet" else rows
            got = reads(path)
            assert len(got) == len(rows)
            for row, other in zip(expected, got, strict=True):
                for index, (name, value) in enumerate(row.items()):
                    if library == "duckdb":  # it ignores case: hparams.lr, hparams.LR_1
                        assert comparable([*other.values()][index]) == comparable(value), path
                    elif name in other:
                        assert comparable(other[name]) == comparable(value), (path, library)
                    else:
                        assert (name, value, library) == ("histogram", None, "fastparquet")


def test_csv_export_holds_same_values_as_parquet(uploaded, export):
    ended, parquet = export(uploaded)
    assert ended.code == 0, ended.err
    ended, directory = export(uploaded, "csv")
    assert ended.code == 0, ended.err
    for table in (*TABLES, *KINDS):
        rows = rows_of(parquet, table)
        path = directory / f"{table}.csv"
        paths = [path] if path.exists() else sorted((directory / table).glob("*.csv"))
        by_library = {
            library: [row for each in paths for row in reads(each)]
            for library, reads in CSV.items()
        }
        expected = list(map(tensor_fields, rows)) if table == "tensors" else csv_texts(rows)
        for library, got in by_library.items():
            read = list(map(parsed_tensor, got)) if table == "tensors" else got
            assert [list(row.values()) for row in read] == [
                list(row.values()) for row in expected
            ], (table, library)
    assert not [path for path in directory.rglob("*.csv") if b"\r\n" in path.read_bytes()[:200]]


def tensor_fields(row):
    """Return the fields of a tensor, with its array, from those in Parquet."""
    packed = row["data"] if row["strings"] is None else tensors.pack_strings(row["strings"])
    array = tensors.to_numpy(NUMBERS[row["dtype"]], row["shape"], packed)
    (fields,) = csv_texts([{name: row[name] for name in ("run", "tag", "step", "wall_time")}])
    return fields | {
        "value": (row["dtype"], array.shape, array_bytes(array)),
        "histogram": row["histogram"],
    }


def parsed_tensor(row):
    """Return the same from the texts in CSV."""
    shape, data = json.loads(row.pop("shape")), json.loads(row.pop("data"))
    dtype, encoding, histogram = [row.pop(name) for name in ("dtype", "encoding", "histogram")]
    if dtype == "string":
        strings = map(base64.b64decode if encoding else str.encode, data)
        array = np.array([*strings, None], object)[:-1]
    elif dtype.startswith("complex"):
        array = np.array([complex(float(real), float(imag)) for real, imag in data], dtype)
    elif dtype == "bfloat16":
        array = (np.array(data, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif dtype.startswith("float"):
        array = np.array([float(each) for each in data], dtype)
    else:
        array = np.array(data, dtype)
    row["value"] = dtype, tuple(shape), array_bytes(array)
    row["histogram"] = json.loads(histogram) if histogram else None
    return row


def array_bytes(array):
    """Return the elements bit by bit, with all NaN equal."""
    if array.dtype.kind in "fc":
        array = np.where(np.isnan(array), np.nan, array).astype(array.dtype)
    return array.reshape(-1).tolist() if array.dtype == object else array.tobytes()


def test_csv_scalars_are_numbers_to_every_library(uploader, logdir, export):
    values = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1 / 3, 0.1 + 0.2, 1e300]
    events = [
        event_files.plugin_event("scalars", "x", step, event_files.tensor_proto(np.float64(value)))
        for step, value in enumerate(values)
    ]
    event_files.write_records(logdir / "NA" / NAME, [event_files.version_event(), *events])
    uploaded = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    _, directory = export(uploaded, "csv")
    path = str(directory / "scalars" / "part-00001.csv")
    frame = pd.read_csv(path, keep_default_na=False, na_values={"value": "NaN"})
    assert frame["run"].tolist() == ["NA"] * len(values)
    assert comparable(frame["value"].tolist()) == comparable(values)
    polars = pl.read_csv(path, schema_overrides={"value": pl.Float64})
    assert comparable(polars["value"].to_list()) == comparable(values)
    assert polars["run"].to_list() == ["NA"] * len(values)
    with duckdb.connect() as connection:
        rows = connection.sql("SELECT run, value FROM read_csv(?)", params=[path]).fetchall()
    assert comparable([row[1] for row in rows]) == comparable(values)


def test_documented_recipes_read_exported_files(uploader, reader, export):
    client = HparamsClient(ApiClient(reader.http, uploader.token))
    client.write("a", start({"lr": 0.1}), scalars("loss", range(5), [5, 4, 3, 2, 1]))
    client.write("NA", start({"lr": 0.2}), scalars("loss", range(5), [1, np.nan, 3, 2, 0.5]))
    directories = {name: export(client.experiment_id, name)[1] for name in ("parquet", "csv")}
    with duckdb.connect() as connection:  # as the page says of CSV: without fetchall() and pytz
        source = str(directories["csv"] / "experiment.csv")
        times = connection.sql("SELECT created_at FROM read_csv(?)", params=[source])
        assert str(times.types[0]) == "TIMESTAMP WITH TIME ZONE"
        assert len(times.pl()) == 1
    page = (ROOT / "docs" / "reading.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names = {}
    for block, directory in zip(blocks, directories.values(), strict=True):
        exec(re.sub(r"\b(DIR|CSV)/", f"{directory}/", block), names)  # noqa: S102 - our own page
        assert sorted(set(names["losses"]["run"])) == ["NA", "a"]
        assert names["losses"]["value"].isna().sum() == 1
    assert names["best"] == [("NA", 0.5, 0.2), ("a", 1.0, 0.1)]
    assert "plugin_content" in names["metadata"].columns
    assert names["same"]["value"].is_nan().sum() == 1
    assert [row[0] for row in names["sessions"]] == ["NA", "a"]


def test_documented_join_finds_sessions_of_demo(uploader, logdir, export):
    write_demo_logdir(logdir)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    ended, directory = export(experiment_id)
    assert ended.code == 0, ended.err
    page = (ROOT / "docs" / "reading.md").read_text()
    query = re.search(r'best = duckdb\.sql\("""(.*?)"""\)', page, re.DOTALL)[1]
    with duckdb.connect() as connection:
        rows = connection.sql(query.replace("DIR/", f"{directory}/")).fetchall()
    runs = [f"{session.run}/{part}" for session in SESSIONS for part in ("train", "validation")]
    assert sorted(row[0] for row in rows) == sorted(runs)
    assert {len(row) for row in rows} == {2 + 4}
    blobs = len(list(directory.glob("files/*/*")))
    assert f" files, of which {blobs} of blobs (" in ended.err
    assert "becomes a file of its own" in ended.err


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_export_of_empty_experiment_has_tables(uploader, reader, export, format_):
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment(name="", description="d", properties={"a": "b"})
    ended, directory = export(experiment_id, format_)
    assert ended.code == 0, ended.err
    readers = PARQUET if format_ == "parquet" else CSV
    for library, reads in readers.items():
        (row,) = reads(directory / f"experiment.{format_}")
        assert (row["name"], row["description"]) == ("", "d"), library
        assert reads(directory / f"properties.{format_}") == [
            {"kind": "property", "name": "a", "value": "b"}
        ]
        for table in ("runs/part-00001", "series/part-00001", "sessions", "hparams"):
            assert reads(directory / f"{table}.{format_}") == [], library


def test_export_of_sessions_is_table_of_api(uploader, reader, export):
    client = HparamsClient(ApiClient(reader.http, uploader.token))
    client.write("a", start({"mixed": 1, "lr": 0.1, "text": ODD_TEXT}), scalars("loss", [1], [2.5]))
    client.write("b", start({"mixed": True, "LR": 2}), scalars("loss", [1], [np.nan]))
    client.write("c", start({"mixed": "x"}))
    ended, directory = export(client.experiment_id)
    assert ended.code == 0, ended.err
    rows = rows_of(directory, "sessions")
    file = directory.with_name("sessions.parquet")
    written = uploader.run("export", "--experiment", client.experiment_id, "--hparams", file)
    assert written.code == 0, written.err
    other = pq.read_table(file).to_pylist()
    assert [sorted(row.items()) for row in comparable_rows(rows)] == [
        sorted(row.items()) for row in comparable_rows(other)
    ]
    types = {
        (row["run"], row["type"]) for row in rows_of(directory, "hparams") if row["name"] == "mixed"
    }
    assert types == {("a", "number"), ("b", "bool"), ("c", "string")}


def test_no_name_is_in_path_of_exported_tables(uploader, reader, tmp_path, export):
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment(name="../../x")
    runs = [
        "../../out",
        "/abs",
        "a/../../b",
        "CON",
        "con",
        "a",
        "A",
        "x" * 3_000,
        MANIFEST,
        "\x1b]0;x\x07\n",
    ]
    tags = ["../t", "NUL", "nul", "t" * 3_000]
    for run in runs:
        api.write(experiment_id, segment(stream(run), 0, 1, *[scalars(tag, [1]) for tag in tags]))
    before = set(tmp_path.rglob("*"))
    ended, directory = export(experiment_id, "csv")
    assert ended.code == 0, ended.err
    made = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(directory) or path == directory for path in made)
    names = {path.relative_to(directory).as_posix() for path in made if path.is_file()}
    allowed = rf"{MANIFEST}|\.tbhub-export\.lock|[a-z]+\.csv|[a-z_]+/part-[0-9]{{5}}\.csv"
    assert [name for name in names if not re.fullmatch(allowed, name)] == []
    with (directory / "series" / "part-00001.csv").open(newline="") as file:
        listed = [(row["run"], row["tag"]) for row in csv.DictReader(file)]
    assert sorted(listed) == sorted((run, tag) for run in runs for tag in tags)


def blobs_logdir(logdir):
    """Write images of four steps to two runs; with each, its width and height are blobs: b"1"."""
    images = [bytes([64 + step]) * size for step, size in enumerate((10, 2_000, 3 << 20, 10))]
    images[3] = images[0]
    events = [event_files.image_event("cat", step, [image]) for step, image in enumerate(images)]
    for run in ("a", "b"):
        loss = event_files.scalar_event("loss", 0, 1.0)
        event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events, loss])
    return images


def test_tables_of_filtered_export_are_of_its_series(uploader, logdir, export):
    blobs_logdir(logdir)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    ended, directory = export(
        experiment_id, "parquet", "--include-runs", "b", "--plugins", "images"
    )
    assert ended.code == 0, ended.err
    assert {row["run"] for row in rows_of(directory, "runs")} == {"b"}
    assert [(row["run"], row["tag"]) for row in rows_of(directory, "series")] == [("b", "cat")]
    assert {(row["run"], row["step"]) for row in rows_of(directory, "blobs")} == {
        ("b", step) for step in range(4)
    }
    assert len([*directory.glob("files/*/*")]) == 4
    assert not (directory / "sessions.parquet").exists()


def test_export_names_lost_blobs_and_keeps_others(uploader, logdir, export, bucket):
    images = blobs_logdir(logdir)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    bucket.delete(images[0])
    for _ in range(2):  # the second finds all of it there
        ended, directory = export(experiment_id)
        lost = sorted((point["run"], point["step"]) for point in ended.done["lost_points"])
        assert (ended.code, lost) == (1, [(run, step) for run in "ab" for step in (0, 3)])
        assert "left out: a  cat  step 0: " in ended.err
    kept = {path.read_bytes() for path in directory.glob("files/*/*")}
    assert kept == {b"1", images[1], images[2]}


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_interrupted_export_of_blobs_is_resumed(uploader, logdir, export, tmp_path, format_):
    images = blobs_logdir(logdir)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    directory = tmp_path / format_
    command = [sys.executable, "-m", "tbupload", "export", "--experiment", experiment_id]
    ended = subprocess.run(
        [
            "/bin/sh",
            "-c",
            'ulimit -f 2048; exec "$@"',
            "-",
            *command,
            "--format",
            format_,
            "--output",
            str(directory),
        ],
        env=uploader.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "complete files are kept" in ended.stderr
    assert not [*directory.rglob("*.tmp")]
    begun = {path: path.stat().st_mtime_ns for path in directory.glob("files/*/*")}
    assert {path.read_bytes() for path in begun} == {b"1", *images[:2]}
    ended, _ = export(experiment_id, format_)
    assert ended.code == 0, ended.err
    assert {path.read_bytes() for path in directory.glob("files/*/*")} == {b"1", *images}
    assert {path: path.stat().st_mtime_ns for path in begun} == begun


def test_export_killed_among_tables_is_resumed(uploader, reader, export):
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment()
    for run in ("a", "b"):
        api.write(experiment_id, segment(stream(run), 0, 1, scalars("loss", range(50))))
    _, clean = export(experiment_id, name="clean")
    directory = clean.with_name("parquet")
    script = (
        "import os\nfrom tbupload.export import exporter\nwrite = exporter.write_table\n"
        "def write_some(client, job, *more):\n"
        "    return os._exit(9) if job.table == 'sessions' else write(client, job, *more)\n"
        "exporter.write_table = write_some\nfrom tbupload.cli import main\nmain()"
    )
    command = ["export", "--experiment", experiment_id, "--output", str(directory)]
    killed = subprocess.run(
        [sys.executable, "-c", script, *command], env=uploader.environment(), check=False
    )
    assert killed.returncode == 9
    assert (directory / "series" / "part-00001.parquet").exists()
    assert not (directory / "sessions.parquet").exists()
    ended, _ = export(experiment_id)
    assert ended.code == 0, ended.err
    for table in (*TABLES, "scalars"):
        assert rows_of(directory, table) == rows_of(clean, table), table
