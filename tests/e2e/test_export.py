"""`tbupload export`: all of an experiment comes back, whatever was logged, even after
interruptions.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import (
    STORE_EVERYTHING_SIZE_GUIDANCE,
    EventAccumulator,
)

from support import event_files
from support.all_writers import NAME, write_files_of_all_writers
from support.batches import ApiClient, scalars, segment, stream, texts
from support.lazy import LazyModule
from support.subprocesses import run_to_end
from support.uploading import tensorboard_scalars
from tbupload.console.progress import ConsoleProgress
from tbupload.errors import Refused
from tbupload.events.filters import SeriesFilter
from tbupload.export.client import ExportClient
from tbupload.export.export_options import ExportOptions
from tbupload.export.exporter import Exporter
from tbupload.export.progress import ExportProgress
from tbupload.http.retry import RetryPolicy
from tbupload.http.transport import Transport

pd = LazyModule("pandas")


def as_text(series):
    """Return the scalars in one order, with all NaN equal, for comparison."""
    return {
        run: {tag: repr(sorted(points.items())) for tag, points in tags.items()}
        for run, tags in series.items()
    }


def test_export_uploaded_again_is_same_bit_by_bit(uploader, reader, logdir, export):
    write_files_of_all_writers(logdir)
    first = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    ended, directory = export(first)
    assert ended.code == 0, ended.err
    assert ended.done["losses"] == {}
    again = uploader.run("--logdir", directory, "--one-shot")
    assert again.code == 0, again.err
    known = reader.digests(first)
    assert len(known) > 100
    assert reader.digests(again.experiment_id) == known
    runs = [reader.get(each, "runs")["runs"] for each in (first, again.experiment_id)]
    assert {run["run"]: run["start_time"] for run in runs[0]} == {
        run["run"]: run["start_time"] for run in runs[1]
    }
    assert as_text(tensorboard_scalars(directory)) == as_text(tensorboard_scalars(logdir))
    for run in (
        "pytorch/scalars",
        "tensorflow1/run",
    ):  # what read the files that were uploaded reads these
        assert simple_scalars(directory / run) == simple_scalars(logdir / run)
    files = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    ended, _ = export(first)
    assert (ended.code, ended.done["was_complete"]) == (0, True)
    assert {path: path.stat().st_mtime_ns for path in directory.rglob("*")} == files


def simple_scalars(path):
    """Return the scalars of TensorBoard's accumulator, which were logged as simple values: {tag:
    {step: value}}.
    """
    accumulator = EventAccumulator(str(path), size_guidance=STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    tags = accumulator.Tags()["scalars"]
    assert tags
    return {
        tag: {event.step: repr(event.value) for event in accumulator.Scalars(tag)} for tag in tags
    }


def test_export_tables_open_in_pandas_and_filter_as_upload(uploader, logdir, export):
    for run in ("a", "b/c", "d"):
        events = [
            event_files.scalar_event(tag, step, step / 3)
            for tag in ("loss", "acc")
            for step in range(50)
        ]
        events += [event_files.text_event("loss", 1, "x")] if run == "d" else []
        event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events])
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    filters = ("--exclude-runs", "a", "--include-tags", "lo.*", "--plugins", "scalars")
    for name, reads in (("parquet", pd.read_parquet), ("csv", pd.read_csv)):
        ended, directory = export(experiment_id, name, *filters, name=name)
        assert ended.code == 0, ended.err
        files = [
            path
            for path in directory.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        ]
        tables = ("experiment", "properties", "uploads", "runs/part-00001", "series/part-00001")
        assert {path.relative_to(directory).as_posix() for path in files} == {
            *(f"{table}.{name}" for table in (*tables, "scalars/part-00001")),
            "tbhub-export.json",
        }
        for table in ("runs", "series"):  # in the order in which they arrived
            part = reads(directory / table / f"part-00001.{name}")
            assert sorted(part["run"]) == ["b/c", "d"], table
        table = reads(directory / "scalars" / f"part-00001.{name}")
        assert sorted(set(zip(table["run"], table["tag"], strict=True))) == [
            ("b/c", "loss"),
            ("d", "loss"),
        ]
        assert table["value"].tolist() == 2 * [float(np.float32(step / 3)) for step in range(50)]
    ended, directory = export(experiment_id, "events", *filters)
    assert {run: list(tags) for run, tags in tensorboard_scalars(directory).items()} == {
        "b/c": ["loss"],
        "d": ["loss"],
    }


def test_place_that_is_not_ours_is_left_alone(uploader, logdir, export, tmp_path):
    event_files.write_records(
        logdir / NAME, [event_files.version_event(), event_files.scalar_event("loss", 1, 2.0)]
    )
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.tex").write_text("x")
    (tmp_path / "file").write_text("x")
    for name, code, words in (
        ("theirs", 2, "contains other files"),
        ("file", 1, "is a file: --output takes a directory"),
        ("file/below", 1, "Not a directory"),
    ):
        ended, _ = export(experiment_id, name=name)
        assert ended.code == code, ended.err
        assert words in ended.err
    assert export(experiment_id)[0].code == 0
    assert "other options (format)" in export(experiment_id, "csv")[0].err
    assert export("A" * 22, name="new")[0].code == 1


def test_workspace_is_exported_whole(uploader, logdir, tmp_path):
    event_files.write_records(
        logdir / NAME, [event_files.version_event(), event_files.scalar_event("loss", 1, 2.0)]
    )
    ids = {uploader.run("--logdir", logdir, "--one-shot", "--new").experiment_id for _ in range(2)}
    for _ in range(2):
        ended = uploader.run("export", "--all", "--format", "events", "--output", tmp_path / "all")
        assert ended.code == 0, ended.err
    assert tensorboard_scalars(tmp_path / "all").keys() == ids


def test_export_killed_midway_resumes_with_missing_series(uploader, reader, export):
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment()
    runs = [f"run{number}" for number in range(24)]
    api.write(
        experiment_id,
        *[
            segment(
                stream(run), 0, 1, scalars("loss", range(50)), texts("text", [1], [run.encode()])
            )
            for run in runs
        ],
    )
    _, clean = export(experiment_id, name="clean")
    begun = clean.with_name("begun")
    # Jobs of one run each; it is killed at the end of the third one.
    script = """
import os
from tbupload.cli import main
from tbupload.export import plan, progress

plan.POINTS_PER_JOB = 1
done = []

def job_done(_self, points):
    done.append(points)
    if len(done) == 3:
        os.kill(os.getpid(), 9)

progress.ExportProgress.job_done = job_done
main()
"""
    what = ("--experiment", experiment_id, "--format", "events", "--output", str(begun))
    command = (sys.executable, "-c", script, "export", *what)
    assert run_to_end(command, env=uploader.environment()).returncode == -9
    killed = whole_files(begun)
    assert 3 <= len(killed) < len(runs)
    begin_earlier(api, experiment_id, runs)
    ended, _ = export(experiment_id, name="begun")
    assert (ended.code, ended.done["points"]) == (0, len(runs) * 51), ended.err
    assert {path: time for path, time in whole_files(begun).items() if path in killed} == killed
    assert as_text(tensorboard_scalars(begun)) == as_text(tensorboard_scalars(clean))
    assert not list(begun.rglob("*.tmp"))
    assert len(list(begun.rglob("events.out.*"))) == len(runs)


def test_export_of_experiment_deleted_meanwhile_fails(uploader, reader, tmp_path):
    api = ApiClient(reader.http, uploader.token)
    experiment_id = api.new_experiment(scalars("loss", [1]), texts("t", [1], [b"t"]))

    class DeletingProgress(ExportProgress):
        """Deletes the experiment once the first of two jobs is done."""

        def job_done(self, _points):
            api.request("DELETE", f"/experiments/{experiment_id}")

    transport = Transport(uploader.server, uploader.token, None, RetryPolicy(0), print)
    options = ExportOptions(uploader.server, experiment_id, "csv", SeriesFilter(), tmp_path / "x")
    progress = DeletingProgress(ConsoleProgress(0), "")
    client = ExportClient(transport, experiment_id)
    for _ in range(2):  # the second time, it is deleted before
        with pytest.raises(Refused, match=f"there is no experiment {experiment_id}"):
            Exporter(client, options, progress).run()
    api.request("POST", f"/experiments/{experiment_id}/restore").raise_for_status()
    summary = Exporter(client, options, ExportProgress(ConsoleProgress(0), "")).run()
    assert (summary.was_complete, summary.points) == (False, 2)


def begin_earlier(api, experiment_id, runs):
    """Write to each run a file that began before its others: the name of an exported file has the
    begin.
    """
    segments = [segment(stream(run, "earlier"), 0, 1) for run in runs]
    for item in segments:
        item.run_start_time = 5.0
    api.write(experiment_id, *segments)


def whole_files(directory):
    """Return the completed files of an export, and when they were written."""
    files = [
        path
        for path in directory.rglob("*[-.]*")
        if path.is_file() and not path.name.startswith((".", "tbhub"))
    ]
    return {path: path.stat().st_mtime_ns for path in files}


def test_export_leaves_out_lost_blobs_and_names_them(uploader, logdir, export, bucket):
    images = [
        bytes([64 + step]) * size
        for step, size in enumerate((10, 2_000, 1_500_000, 10_000_000, 30, 40))
    ]
    events = [event_files.image_event("cat", step, [image]) for step, image in enumerate(images)]
    for run in ("a", "b"):
        loss = event_files.scalar_event("loss", 0, 1.0)
        event_files.write_records(logdir / run / NAME, [event_files.version_event(), *events, loss])
    uploaded = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    bucket.delete(images[0], images[1], images[3])
    bucket.replace(images[4], images[4].lower())
    lost = [(run, "cat", step) for run in "ab" for step in (0, 1, 3, 4)]
    for _ in range(2):  # the second finds all of it there
        ended, directory = export(uploaded)
        points = sorted(
            (point["run"], point["tag"], point["step"]) for point in ended.done["lost_points"]
        )
        assert (ended.code, points) == (1, lost), ended.err
        assert "left out: a  cat  step 0: " in ended.err
    again = uploader.run("--logdir", directory, "--one-shot", "--json")
    assert (again.code, again.done["scalars"], again.done["blobs"]) == (0, 2, 2 * 2 * 3)
    repaired = uploader.run(
        "verify", "--logdir", logdir, "--experiment", uploaded, "--deep", "--repair"
    )
    assert repaired.code == 0, repaired.out
    assert export(uploaded, name="another")[0].code == 0
