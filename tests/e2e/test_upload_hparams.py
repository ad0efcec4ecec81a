"""`tbupload --hparams`: which runs get what, once, whatever breaks meanwhile."""

from __future__ import annotations

import base64
import json
import signal

import pytest

from support import event_files
from support.uploading import wait_until
from tbwire.hparams_pb2 import HParamsPluginData, SessionStartInfo

START = "_hparams_/session_start_info"


def write(logdir, run, *events, count=3, append=False):
    """Writes scalars of a run, and other events before them."""
    points = [event_files.scalar_event("loss", step, float(step)) for step in range(count)]
    path = logdir / run / "events.out.tfevents.1.host"
    event_files.write_records(path, [*events, *points], append=append)


def logged(**values):
    """Return the summary that a training script logs of its hyperparameters."""
    info = SessionStartInfo()
    for key, value in values.items():
        info.hparams.add(key=key).value.number_value = value
    content = HParamsPluginData(session_start_info=info).SerializeToString()
    return event_files.hparams_event(START, content)


def hparams(reader, experiment_id):
    """{run: {name: value}} of every run that has some."""
    stored = {}
    for run, tags in reader.get(experiment_id, "tensors", plugin="hparams").items():
        content = base64.b64decode(tags[START]["summary_metadata"]["content"])
        entries = HParamsPluginData.FromString(content).session_start_info.hparams
        stored[run] = {
            entry.key: getattr(entry.value, entry.value.WhichOneof("kind")) for entry in entries
        }
    return stored


@pytest.fixture
def file(tmp_path):
    """Writes the file of `--hparams`; answers its path."""

    def file(content, name="hparams.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return file


def test_hparams_for_all_reach_runs_that_have_none(uploader, reader, logdir, file):
    write(logdir, ".")
    write(logdir, "a/b")
    write(logdir, "logs", logged(lr=7))
    arguments = ("--logdir", logdir, "--hparams", file({"lr": 1, "opt": "adam"}), "--json")
    dry = uploader.run(*arguments, "--dry-run")
    real = uploader.run(*arguments, "--one-shot")
    assert (dry.code, real.code) == (0, 0), real.err
    assert dry.done["hparams_runs"] == real.done["hparams_runs"] == 2
    assert "would set hyperparameters of 2 runs" in dry.err
    assert "  set hyperparameters of 2 runs" in real.err
    values = {"lr": 1, "opt": "adam"}
    assert hparams(reader, real.experiment_id) == {".": values, "a/b": values, "logs": {"lr": 7}}

    other = ("--experiment", real.experiment_id, "--one-shot", "--json")
    again = uploader.run("--logdir", logdir, "--hparams", file({"lr": 2}), *other)
    assert (again.code, again.done["hparams_runs"]) == (0, 0)
    assert hparams(reader, real.experiment_id)["a/b"] == values


def test_hparams_by_run_are_united_with_logged_ones(uploader, reader, logdir, file):
    write(logdir, ".")
    write(logdir, "logs", logged(lr=7, n=1))
    write(logdir, "left")
    path = file(".: {lr: 1e-4}\nlogs: {lr: 2, add: true}\n", "h.yaml")
    arguments = ("--logdir", logdir, "--hparams", path, "--one-shot", "--json")
    real = uploader.run(*arguments)
    assert (real.code, real.done["hparams_runs"]) == (0, 2), real.err
    expected = {".": {"lr": 1e-4}, "logs": {"lr": 2, "n": 1, "add": True}}
    assert hparams(reader, real.experiment_id) == expected

    path.write_text("left: {lr: 5}\n'.': {lr: 6}\n")
    again = uploader.run(*arguments, "--experiment", real.experiment_id)
    assert (again.code, again.done["bytes"], again.done["hparams_runs"]) == (0, 0, 2)
    expected |= {".": {"lr": 6}, "left": {"lr": 5}}
    assert hparams(reader, real.experiment_id) == expected


def test_hparams_of_run_that_does_not_exist_exit_1(uploader, reader, logdir, file):
    write(logdir, "a")
    path = file({"a": {"lr": 1}, "b": {"lr": 1}, "filtered": {"lr": 1}})
    arguments = ("--logdir", logdir, "--hparams", path, "--exclude-runs", "filtered", "--json")
    dry = uploader.run(*arguments, "--dry-run")
    real = uploader.run(*arguments, "--one-shot")
    told = [f"{path}: the log directory has no run 'b'"]
    assert (dry.code, dry.done["problems"]) == (real.code, real.done["problems"]) == (1, told)
    assert (dry.done["hparams_runs"], real.done["hparams_runs"]) == (1, 1)
    assert hparams(reader, real.experiment_id) == {"a": {"lr": 1}}
    assert [run["run"] for run in reader.get(real.experiment_id, "runs")["runs"]] == ["a"]


def test_hparams_that_server_refuses_exit_1(uploader, reader, logdir, file):
    write(logdir, "a", event_files.scalar_event(START, 0, 1.0))
    write(logdir, "b")
    path = file({"a": {"lr": 1}, "b": {"lr": 1}})
    ended = uploader.run("--logdir", logdir, "--hparams", path, "--one-shot", "--json")
    assert (ended.code, ended.done["hparams_runs"]) == (1, 1)
    (problem,) = ended.done["problems"]
    assert problem.startswith(f"{path}: run 'a': ")
    assert "belongs to plugin 'scalars'" in problem
    assert ended.done["scalars"] == 7
    assert hparams(reader, ended.experiment_id) == {"b": {"lr": 1}}


def test_follow_sets_hparams_of_later_runs(uploader, reader, logdir, file):
    write(logdir, "a")
    with uploader.follow(logdir, "--hparams", file({"lr": 1})) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: hparams(reader, experiment_id) == {"a": {"lr": 1}})
        write(logdir, "b/c")
        both = {"a": {"lr": 1}, "b/c": {"lr": 1}}
        wait_until(lambda: hparams(reader, experiment_id) == both)
        write(logdir, "logs", logged(lr=7))
        ended = following.stop(signal.SIGINT)
    assert ended.code == 0, ended.err
    assert hparams(reader, experiment_id)["logs"] == {"lr": 7}


def test_verify_accepts_hparams_set_beside_logged_ones(uploader, reader, logdir, file):
    write(logdir, "a", logged(lr=7, n=1))
    path = file({"a": {"lr": 2, "add": True}})
    real = uploader.run("--logdir", logdir, "--hparams", path, "--one-shot")
    assert hparams(reader, real.experiment_id) == {"a": {"lr": 2, "n": 1, "add": True}}
    arguments = ("verify", "--logdir", logdir, "--experiment", real.experiment_id, "--strict")
    ended = uploader.run(*arguments)
    assert ended.code == 0, ended.out + ended.err
    assert "DIFFERENT" not in ended.out
    assert "series of hyperparameters set without files: 1" in ended.out

    write(logdir, "a", logged(late=1), count=0, append=True)
    ended = uploader.run(*arguments, "--json")
    assert (ended.code, ended.done["series"]["different"]) == (1, 1)
    uploader.run("--logdir", logdir, "--one-shot", "--experiment", real.experiment_id)
    expected = {"lr": 2, "n": 1, "add": True, "late": 1}
    assert hparams(reader, real.experiment_id) == {"a": expected}
    assert uploader.run(*arguments).code == 0
