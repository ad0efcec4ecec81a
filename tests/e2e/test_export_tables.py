"""`tbupload export` to Parquet and CSV holds each stored fact: bit by bit, whatever was logged."""

from __future__ import annotations

import hashlib
import re
import sys
from collections import defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest

from support import event_files
from support.all_writers import NAME, write_files_of_all_writers
from support.batches import ApiClient, scalars
from support.hparams import HparamsClient, start
from support.lazy import LazyModule
from support.source_code import ROOT
from support.subprocesses import run_to_end
from tbservice.local.demo import write_demo_logdir
from tbservice.local.demo.sessions import SESSIONS
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


def test_parquet_export_holds_what_was_logged_bit_by_bit(uploaded, reader, export):
    ended, directory = export(uploaded, "parquet")
    assert ended.code == 0, ended.err
    known = reader.digests(uploaded)
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


def test_documented_recipes_read_exported_files(uploader, reader, export):
    client = HparamsClient(ApiClient(reader.http, uploader.token))
    client.write("a", start({"lr": 0.1}), scalars("loss", range(5), [5, 4, 3, 2, 1]))
    client.write("NA", start({"lr": 0.2}), scalars("loss", range(5), [1, np.nan, 3, 2, 0.5]))
    directories = {
        name: export(client.experiment_id, name, name=name)[1] for name in ("parquet", "csv")
    }
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
    ended, directory = export(experiment_id, "parquet")
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


def blobs_logdir(logdir):
    """Write images of four steps to two runs; with each, its width and height are blobs: b"1"."""
    images = [bytes([64 + step]) * size for step, size in enumerate((10, 2_000, 3 << 20, 10))]
    images[3] = images[0]
    events = [event_files.image_event("cat", step, [image]) for step, image in enumerate(images)]
    for run in ("a", "b"):
        loss = event_files.scalar_event("loss", 0, 1.0)
        event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events, loss])
    return images


def test_interrupted_export_of_blobs_is_resumed(uploader, logdir, export, tmp_path):
    images = blobs_logdir(logdir)
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    directory = tmp_path / "exported"
    command = [sys.executable, "-m", "tbupload", "export", "--experiment", experiment_id]
    ended = run_to_end(
        [
            "/bin/sh",
            "-c",
            'ulimit -f 2048; exec "$@"',
            "-",
            *command,
            "--format",
            "parquet",
            "--output",
            str(directory),
        ],
        env=uploader.environment(),
    )
    assert ended.returncode == 1, ended.stderr
    assert "complete files are kept" in ended.stderr
    assert not [*directory.rglob("*.tmp")]
    begun = {path: path.stat().st_mtime_ns for path in directory.glob("files/*/*")}
    assert {path.read_bytes() for path in begun} == {b"1", *images[:2]}
    ended, _ = export(experiment_id, "parquet")
    assert ended.code == 0, ended.err
    assert {path.read_bytes() for path in directory.glob("files/*/*")} == {b"1", *images}
    assert {path: path.stat().st_mtime_ns for path in begun} == begun
