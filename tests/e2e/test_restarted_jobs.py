"""A training that is killed and restarted from a checkpoint: the newest curve is shown, the earlier
one can be selected: stock page, API, client, `show` and `export`.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from support.servers import http_client
from support.uploading import tensorboard_scalars, wait_until
from tbupload import Experiment

TRAIN = """
import os, sys, time
sys.path[:0] = {path!r}
from support import event_files
logdir, first, last, rate, started = sys.argv[1], *map(float, sys.argv[2:])
name = f"events.out.tfevents.{{int(started)}}.host.{{os.getpid()}}"
path = os.path.join(logdir, "train", name)
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, "ab") as file:
    def write(event):
        file.write(event_files.encode_record(event.SerializeToString()))
        file.flush()
    write(event_files.version_event(started))
    for step in range(int(first), int(last)):
        write(event_files.scalar_event("loss", step, step * rate, started + step))
        if step == 799 and rate == 1:
            print("at 800", flush=True)
            time.sleep(60)  # killed here
"""
STARTS = 1_700_000_000.0, 1_700_005_000.0


def train(logdir, first, last, rate, started):
    """Run the training script; the first one hangs at step 800."""
    script = TRAIN.format(path=sys.path)
    arguments = map(str, (logdir, first, last, rate, started))
    return subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE)


@pytest.fixture
def restarted(uploader, logdir, reader):
    """The experiment of a job that was killed at step 800, and began again at 500, while followed."""
    with uploader.follow(logdir) as following:
        experiment = following.wait_for_experiment()
        with train(logdir, 0, 1000, 1, STARTS[0]) as first:
            assert first.stdout.readline() == b"at 800\n"
            os.kill(first.pid, signal.SIGKILL)
        wait_until(lambda: len(reader.scalars(experiment).get("train", {}).get("loss", [])) == 800)
        with train(logdir, 500, 1000, -1, STARTS[1]) as second:
            assert second.wait() == 0
        wait_until(lambda: len(reader.scalars(experiment)["train"]["loss"]) == 1000)
        ended = following.stop()
        assert (ended.code, ended.err.count("was restarted at ")) == (0, 1)
        assert "this is attempt 2. It replaces the points of attempt 1 at the" in ended.err
    return experiment


OLD = [float(step) for step in range(800)]
NEW = [float(step if step < 500 else -step) for step in range(1000)]


def test_stock_curve_shows_newest_and_attempt_the_old_one(uploader, reader, logdir, restarted):
    assert reader.scalars(restarted) == tensorboard_scalars(logdir)  # as TensorBoard on the files
    with http_client(uploader.server) as browser:
        browser.headers["Authorization"] = f"Bearer {uploader.token}"
        for address, values in (("", NEW), ("attempt/1/", OLD), ("attempt/2/", NEW)):
            path = f"/experiment/{restarted}/{address}data/plugin/scalars/scalars"
            points = browser.get(path, params={"run": "train", "tag": "loss"}).json()
            assert [value for _, _, value in points] == values
    assert uploader.run("verify", "--logdir", logdir, "--experiment", restarted).code == 0


def test_client_reads_attempts(uploader, restarted):
    experiment = Experiment(f"{uploader.server}/experiment/{restarted}/", token=uploader.token)
    attempts = experiment.attempts()
    assert attempts.to_dict("list") == {
        "run": ["train", "train"],
        "attempt": [1, 2],
        "started_at": list(STARTS),
        "superseded_points": [300, 0],
    }
    for attempt, values in ((None, NEW), (1, OLD), (2, NEW)):
        frame = experiment.scalars(tag="loss", attempt=attempt)
        assert frame["value"].tolist() == values
    assert len(experiment.scalars(attempt=1, sampling="uniform", downsample=10)) == 10
    assert len(experiment.tensors(attempt=1)) == len(experiment.blobs(attempt=1)) == 0
    with pytest.raises(Exception, match=r"there is no attempt 3: the runs .* at most 2 attempts"):
        experiment.scalars(attempt=3)


def test_commands_name_and_export_attempts(uploader, tmp_path, restarted):
    shown = uploader.run("show", restarted)
    assert shown.code == 0
    assert "attempt 1 of 'train': began 2023-11-14" in shown.out
    assert "300 points superseded" in shown.out
    assert (
        json.loads(uploader.run("show", restarted, "--json").out)["attempts"][0]["run"] == "train"
    )

    export = ("export", "--experiment", restarted, "--attempt", "1")
    ended = uploader.run(*export, "--format", "csv", "--output", tmp_path / "csv")
    assert (ended.code, "exported 800 points of 1 series" in ended.err) == (0, True)
    (file,) = (tmp_path / "csv").glob("scalars*/*.csv")
    rows = [row.split(",") for row in file.read_text().splitlines()[1:]]
    assert [float(row[-1]) for row in rows] == OLD
    assert uploader.run(*export, "--format", "events", "--output", tmp_path / "events").code == 0
    exported = tensorboard_scalars(tmp_path / "events")["train"]["loss"]
    assert [value for _, value in exported.values()] == OLD
    mixed = ("export", "--experiment", restarted, "--format", "csv", "--output", tmp_path / "csv")
    assert uploader.run(*mixed).code == 2  # another export is there

    for arguments, code, sentence in (
        ((*export[:-1], "3", "--output", tmp_path / "a"), 1, "there is no attempt 3"),
        ((*export[:-1], "0", "--output", tmp_path / "b"), 2, "not the number of an attempt"),
        ((*export, "--hparams", tmp_path / "h.csv"), 2, "--attempt is for --output"),
        (("export", "--all", "--attempt", "1", "--output", tmp_path / "c"), 2, "--attempt is for"),
    ):
        ended = uploader.run(*arguments)
        assert ended.code == code
        assert sentence in ended.err
