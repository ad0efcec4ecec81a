"""System metrics of the machine, in a run of their own beside the uploaded files."""

from __future__ import annotations

import re
import signal
import sys
import time

import pytest

from support import event_files
from support.subprocesses import run_to_end
from support.uploading import wait_until

NAMES = {
    "cpu_percent",
    "memory_used_bytes",
    "memory_percent",
    "disk_used_percent",
    "network_received_bytes_per_second",
    "network_sent_bytes_per_second",
}
"""Metrics that every Linux machine has; those of disks are missing in some containers."""


def system_run(reader, experiment_id):
    """Return name and series of the run with the metrics: {tag: {step: (wall time, value)}}."""
    runs = reader.scalars(experiment_id)
    (name,) = [name for name in runs if name.startswith("system/")]
    return name, runs[name]


def has_metrics(reader, experiment_id, count):
    series = reader.scalars(experiment_id)
    return any(
        len(points) >= count
        for run, tags in series.items()
        if run.startswith("system/")
        for points in tags.values()
    )


def check_metrics(reader, experiment_id, began):
    name, series = system_run(reader, experiment_id)
    assert {f"system/{each}" for each in NAMES} <= series.keys()
    for tag, points in series.items():
        steps = sorted(points)
        assert steps == list(points), tag
        assert 0 <= steps[0] <= steps[-1] <= time.time() - began + 3
        assert all(began - 1 <= wall_time <= time.time() for wall_time, _ in points.values())
        assert all(value >= 0 for _, value in points.values())
    (_, percent), *_ = series["system/memory_percent"].values()
    assert 0 < percent <= 100
    return name


def test_metrics_are_in_a_run_of_their_own_and_verify_matches(uploader, reader, written, tmp_path):
    began = time.time()
    with uploader.follow(written, "--system-metrics", "1") as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: has_metrics(reader, experiment_id, 3))
        event_files.append_scalars(written, range(5, 9))
        ended = following.stop(signal.SIGINT)
    assert (ended.code, "9 scalars" in ended.err or "scalars" in ended.err) == (0, True)
    name = check_metrics(reader, experiment_id, began)
    (upload,) = reader.get(experiment_id, "uploads")["uploads"]
    assert name == f"system/{upload['upload_id'][:8]}"
    assert upload["origin"]["host"] not in name

    options = ("verify", "--logdir", written, "--experiment", experiment_id, "--json")
    for strict in ((), ("--strict",)):
        verified = uploader.run(*options, *strict)
        assert (verified.code, verified.done["system_runs"]) == (0, [name])
        assert verified.done["extra_runs"] == []
    write_extra(uploader, experiment_id, name, tmp_path)
    verified = uploader.run(*options, "--strict")
    assert (verified.code, verified.done["extra_runs"]) == (1, [name])


def write_extra(uploader, experiment_id, name, tmp_path):
    """Upload another series into the run."""
    other = tmp_path / "other"
    events = [event_files.scalar_event("loss", 1, 1.0)]
    event_files.write_records(other / name / "tfevents.1", events)
    assert uploader.run("--logdir", other, "--one-shot", "--experiment", experiment_id).code == 0


def test_metrics_ignore_filters_and_need_no_origin(uploader, reader, written):
    options = ("--one-shot", "--system-metrics", "--include-runs", "run", "--no-origin")
    ended = uploader.run("--logdir", written, *options)
    assert ended.code == 0
    name, series = system_run(reader, ended.experiment_id)
    assert re.fullmatch("system/[0-9a-f]{8}", name)
    assert series["system/cpu_percent"]  # the last one, where it took less than 10 s
    assert reader.get(ended.experiment_id, "uploads")["uploads"] == []


def test_temporary_files_of_metrics_are_removed(uploader, written, tmp_path, monkeypatch):
    (place := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    with uploader.follow(written, "--system-metrics", "1") as following:
        following.wait_for_experiment()
        wait_until(lambda: list(place.rglob("events.out.tfevents.*")))
        following.stop(signal.SIGINT)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("seconds", ["0.5", "3601", "nan"])
def test_interval_out_of_bounds_is_wrong_usage(uploader, written, seconds):
    ended = uploader.run("--logdir", written, f"--system-metrics={seconds}")
    assert (ended.code, "--system-metrics" in ended.err) == (2, True)


def test_missing_psutil_is_one_clear_line(uploader, reader, written, tmp_path):
    """The command ends with wrong usage; a script continues without metrics."""
    # Python's own way to make a module one that cannot be found.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['psutil'] = None\n")
    environment = uploader.environment() | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "tbupload", "--logdir", written, "--system-metrics"]
    ended = run_to_end(command, env=environment)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith("pip install psutil\n")
    assert "Traceback" not in ended.stderr

    source = """
import tbupload, sys
with tbupload.follow(sys.argv[1], system_metrics=True, no_origin=True) as upload:
    print(upload.url)
upload.stop()
"""
    script = run_to_end([sys.executable, "-c", source, written], env=environment, check=True)
    (line,) = script.stderr.splitlines()
    assert "pip install psutil" in line
    experiment_id = script.stdout.split("/experiment/")[1].split("/")[0]
    assert list(reader.scalars(experiment_id)) == ["run"]
