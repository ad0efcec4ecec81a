"""`tbupload --hparams`: which runs get what, once, whatever breaks meanwhile."""

from __future__ import annotations

import base64
import json
import signal
import time

import pytest

from support import event_files
from support.flaky_proxy import flaky_proxy
from support.uploading import Uploader, wait_until
from tbwire.hparams import Status
from tbwire.hparams_pb2 import HParamsPluginData, SessionStartInfo

SUCCESS, FAILURE = Status.STATUS_SUCCESS, Status.STATUS_FAILURE
START, END = "_hparams_/session_start_info", "_hparams_/session_end_info"


def write(logdir, run, *events, count=3, append=False):
    """Writes scalars of a run, and other events before them."""
    points = [event_files.scalar_event("loss", step, float(step)) for step in range(count)]
    path = logdir / run / "events.out.tfevents.1.host"
    event_files.write_records(path, [*events, *points], append=append)


def logged(**values):
    """What a training script logs."""
    info = SessionStartInfo()
    for key, value in values.items():
        info.hparams.add(key=key).value.number_value = value
    content = HParamsPluginData(session_start_info=info).SerializeToString()
    return event_files.hparams_event(START, content)


def logged_end(status, wall_time=event_files.WALL_TIME):
    """What a training script logs at its end."""
    content = HParamsPluginData(session_end_info={"status": status}).SerializeToString()
    return event_files.hparams_event(END, content, wall_time)


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


def test_hparams_file_that_is_wrong_creates_nothing(uploader, reader, logdir, file):
    write(logdir, "a")
    ended = uploader.run("--logdir", logdir, "--hparams", file('{"lr":\n}'), "--one-shot")
    assert (ended.code, ended.out) == (2, "")
    assert "hparams.json: line 2, column 1: " in ended.err
    assert reader.http.get("/api/v1/experiments").json()["experiments"] == []


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


def test_hparams_need_only_token_to_append(uploader, reader, logdir, file):
    write(logdir, "a")
    made = reader.http.post("/api/v1/experiments", json={}).json()["experiment_id"]
    url = f"/api/v1/experiments/{made}/tokens"
    token = reader.http.post(url, json={"scopes": ["append"]}).json()["token"]
    appender = Uploader(uploader.server, token, uploader.directory)
    arguments = ("--logdir", logdir, "--hparams", file({"lr": 1}), "--one-shot")
    assert appender.run(*arguments, "--experiment", made).code == 0
    assert hparams(reader, made) == {"a": {"lr": 1}}


@pytest.mark.parametrize("faults", [["", "unanswered"], ["unanswered", "lost", "", "503"]])
def test_bad_network_sets_hparams_once(uploader, reader, live_service, logdir, file, faults):
    for number in range(5):
        write(logdir, f"run{number}")
    path = file({f"run{number}": {"lr": number} for number in range(5)})
    with flaky_proxy(live_service.url, faults) as proxy:
        arguments = ("--logdir", logdir, "--hparams", path, "--one-shot", "--server", proxy)
        ended = uploader.run(*arguments)
    assert ended.code == 0, ended.err
    expected = {f"run{number}": {"lr": number} for number in range(5)}
    assert hparams(reader, ended.experiment_id) == expected


def test_killed_uploader_sets_hparams_when_resumed(uploader, reader, logdir, file):
    runs = [f"run{number:03}" for number in range(300)]
    for run in runs:
        write(logdir, run)
    path = file({"lr": 1})
    with uploader.follow(logdir, "--hparams", path) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: hparams(reader, experiment_id))
        following.process.kill()
        following.wait()
    assert len(hparams(reader, experiment_id)) < len(runs)
    arguments = ("--logdir", logdir, "--hparams", path, "--one-shot")
    assert uploader.run(*arguments, "--experiment", experiment_id).code == 0
    assert hparams(reader, experiment_id) == {run: {"lr": 1} for run in runs}


def test_verify_accepts_hparams_that_were_set(uploader, reader, logdir, file):
    write(logdir, "a")
    real = uploader.run("--logdir", logdir, "--hparams", file({"lr": 1}), "--one-shot")
    end = {"status": "success"}
    url = f"/api/v1/experiments/{real.experiment_id}/runs/a/hparams"
    assert reader.http.put(url, json=end).json()["changed"]
    arguments = ("verify", "--logdir", logdir, "--experiment", real.experiment_id, "--strict")
    ended = uploader.run(*arguments)
    assert ended.code == 0, ended.out + ended.err
    assert "series of hyperparameters set without files: 2" in ended.out
    assert "more than these files" not in ended.out
    assert uploader.run(*arguments, "--json").done["set_sessions"] == 2


def test_verify_accepts_hparams_set_beside_logged_ones(uploader, reader, logdir, file):
    write(logdir, "a", logged(lr=7, n=1))
    path = file({"a": {"lr": 2, "add": True}})
    real = uploader.run("--logdir", logdir, "--hparams", path, "--one-shot")
    assert hparams(reader, real.experiment_id) == {"a": {"lr": 2, "n": 1, "add": True}}
    arguments = ("verify", "--logdir", logdir, "--experiment", real.experiment_id, "--strict")
    ended = uploader.run(*arguments)
    assert ended.code == 0, ended.out + ended.err
    assert "DIFFERENT" not in ended.out

    write(logdir, "a", logged(late=1), count=0, append=True)
    ended = uploader.run(*arguments, "--json")
    assert (ended.code, ended.done["series"]["different"]) == (1, 1)
    uploader.run("--logdir", logdir, "--one-shot", "--experiment", real.experiment_id)
    expected = {"lr": 2, "n": 1, "add": True, "late": 1}
    assert hparams(reader, real.experiment_id) == {"a": expected}
    assert uploader.run(*arguments).code == 0


@pytest.fixture
def set_session(reader):
    """Sets something of the session of run `a`, which must change it."""

    def set_session(experiment_id, **fields):
        url = f"/api/v1/experiments/{experiment_id}/runs/a/hparams"
        assert reader.http.put(url, json=fields).raise_for_status().json()["changed"]

    return set_session


@pytest.fixture
def verify(uploader, logdir):
    """Verifies the log directory strictly; answers what it says."""

    def verify(experiment_id):
        arguments = ("verify", "--logdir", logdir, "--experiment", experiment_id, "--strict")
        return uploader.run(*arguments, "--json")

    return verify


@pytest.mark.parametrize("seconds", [0, 1e6], ids=["", "in_future"])
def test_verify_accepts_end_set_over_logged_one(uploader, logdir, set_session, verify, seconds):
    at = time.time() + seconds
    write(logdir, "a", logged(lr=7), logged_end(SUCCESS, at))
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    assert verify(experiment_id).done["set_sessions"] == 0
    set_session(experiment_id, status="failure", end_time_secs=9)
    ended = verify(experiment_id)
    assert (ended.code, ended.done["set_sessions"]) == (0, 1), ended.out

    write(logdir, "a", logged_end(FAILURE, at + 100), count=0, append=True)
    assert verify(experiment_id).done["series"]["different"] == 1  # not uploaded yet


def test_verify_accepts_older_record_equal_to_set_one(
    uploader, reader, logdir, set_session, verify
):
    """The record of the file arrives after the one that is set, and is older."""
    made = reader.http.post("/api/v1/experiments", json={}).json()["experiment_id"]
    set_session(made, hparams={"lr": 7})
    set_session(made, status="success")
    write(logdir, "a", logged(lr=7), logged_end(SUCCESS))
    uploaded = uploader.run("--logdir", logdir, "--one-shot", "--experiment", made)
    assert (uploaded.code, hparams(reader, made)) == (0, {"a": {"lr": 7}})
    ended = verify(made)
    assert (ended.code, ended.done["set_sessions"]) == (0, 2), ended.out


def test_verify_finds_end_that_is_not_stored(uploader, logdir, set_session, verify):
    write(logdir, "a", logged(lr=7))
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    write(logdir, "a", logged_end(SUCCESS), count=0, append=True)
    assert verify(experiment_id).done["series"]["missing"] == 1
    set_session(experiment_id, hparams={"n": 1})
    assert verify(experiment_id).done["series"]["missing"] == 1


def test_export_of_set_hparams_keeps_status(uploader, logdir, set_session, tmp_path):
    """The values that are set are newer than the end, also in another experiment."""
    write(logdir, "a", logged(lr=7), logged_end(SUCCESS))
    experiment_id = uploader.run("--logdir", logdir, "--one-shot").experiment_id
    set_session(experiment_id, hparams={"n": 1})
    exported, table = tmp_path / "exported", tmp_path / "sessions.json"
    what = ("--experiment", experiment_id, "--format", "events", "--output", exported)
    assert uploader.run("export", *what).code == 0
    again = uploader.run("--logdir", exported, "--one-shot", "--new")
    uploader.run("export", "--experiment", again.experiment_id, "--hparams", table)
    (session,) = json.loads(table.read_bytes())
    fields = [session[name] for name in ("status", "hparams.lr", "hparams.n")]
    assert fields == ["success", 7.0, 1.0]
