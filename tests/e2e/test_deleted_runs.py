"""`tbupload delete --run`, and what uploaders and `verify` do about runs that were deleted."""

import json
import os
import shutil
import subprocess
import sys
from urllib.parse import parse_qsl, urlsplit

import pytest

from support import event_files
from support.uploading import tensorboard_scalars, wait_until

RUN = "a/b 100% ü"


def write(logdir, run, steps=range(10), name="events.out.tfevents.1.host"):
    """Write a file of a run; return its path."""
    path = logdir / run / name
    scalars = [event_files.scalar_event("loss", step, step, 1000.0 + step) for step in steps]
    event_files.write_records(path, [event_files.version_event(1000.0), *scalars])
    return path


def append(path, steps):
    """Append points to a file, as a training does that continues."""
    events = [event_files.scalar_event("loss", step, step, 1000.0 + step) for step in steps]
    event_files.write_records(path, events, append=True)


@pytest.fixture
def upload(uploader, logdir):
    """Run `tbupload --one-shot` for the log directory."""
    return lambda *arguments: uploader.run("--logdir", logdir, "--one-shot", *arguments)


@pytest.fixture
def first(upload, logdir):
    """The experiment of a first upload of two runs."""
    for run in ("kept", RUN):
        write(logdir, run)
    write(logdir, RUN, range(10, 12), "events.out.tfevents.2.host")
    return upload().experiment_id


def test_deleted_run_is_left_out_until_asked_for(uploader, upload, reader, logdir, first):
    ended = uploader.run("delete", first, "--run", RUN, "--yes")
    assert (ended.code, ended.out) == (0, f"deleted run {RUN!r}\n")
    assert reader.scalars(first).keys() == {"kept"}
    for _ in range(2):
        ended = upload()
        assert ended.code == 1
        assert ended.experiment_id == first
        assert f"run {RUN!r} was deleted on the server, so it is not uploaded again" in ended.err
        assert "--upload-deleted-runs" in ended.err
        assert "nothing new" not in ended.err
        assert "skipped 2: file of a run that was deleted on the server" in ended.err
        assert reader.scalars(first).keys() == {"kept"}

    ended = upload("--exclude-runs", "a/.*", "--experiment", first)
    assert ended.code == 0
    ended = upload("--upload-deleted-runs")
    assert (ended.code, ended.experiment_id) == (0, first)
    assert f"uploading run {RUN!r} again, deleted on the server" in ended.err
    assert reader.scalars(first) == tensorboard_scalars(logdir)
    ended = upload()
    assert ended.code == 0
    assert "nothing new" in ended.err


def test_run_deleted_while_followed_is_named_and_others_go_on(uploader, reader, logdir):
    paths = [write(logdir, run) for run in ("kept", RUN)]
    with uploader.follow(logdir) as following:
        experiment = following.wait_for_experiment()
        wait_until(lambda: len(reader.scalars(experiment)) == 2)
        assert uploader.run("delete", experiment, "--run", RUN, "--yes").code == 0
        for path in paths:
            append(path, range(10, 20))
        wait_until(lambda: f"run {RUN!r} was deleted on the server" in following.err())
        write(logdir, RUN, range(5), "events.out.tfevents.9.host")
        write(logdir, "new")
        wait_until(lambda: reader.scalars(experiment).keys() == {"kept", "new"})
        wait_until(lambda: len(reader.scalars(experiment)["kept"]["loss"]) == 20)
        ended = following.stop()
    assert ended.code == 1
    assert "NOT everything was sent" in ended.err
    assert reader.scalars(experiment).keys() == {"kept", "new"}

    with uploader.follow(logdir) as following:  # the same command, resumed
        wait_until(lambda: f"run {RUN!r} was deleted on the server" in following.err())
        append(paths[0], [20])
        wait_until(lambda: len(reader.scalars(experiment)["kept"]["loss"]) == 21)
        assert following.stop().code == 1
    assert reader.scalars(experiment).keys() == {"kept", "new"}


def test_verify_says_which_runs_were_deleted(uploader, logdir, first):
    arguments = ("verify", "--logdir", logdir, "--experiment", first)
    assert "deleted" not in uploader.run(*arguments).out
    assert uploader.run("delete", first, "--run", RUN, "--yes").code == 0
    ended = uploader.run(*arguments)
    assert ended.code == 1
    assert f"deleted on the server, so that all of it is missing: run {RUN!r}" in ended.out
    last = uploader.run(*arguments, "--json").out.splitlines()[-1]
    assert json.loads(last)["deleted_runs"] == [RUN]
    assert uploader.run(*arguments, "--exclude-runs", "a/.*").code == 0
    shutil.rmtree(logdir / "a")
    ended = uploader.run(*arguments)
    assert (ended.code, "deleted" in ended.out) == (0, False)


def test_delete_run_needs_exact_names_and_a_confirmation(uploader, reader, first):
    for arguments, sentence in (
        (("--run", "kep", "--yes"), "has no run 'kep'; did you mean 'kept'?"),
        (("--run", "kept", "--run", "no", "--yes"), "has no run 'no'"),
        (("--run", "kept"), "deleting requires --yes"),
        (("--run", "kept", "--yes", "--permanently"), "exclude each other"),
    ):
        ended = uploader.run("delete", first, *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert sentence in ended.err
    assert len(reader.scalars(first)) == 2


def confirm(uploader, *command, answers=b"y\n"):
    """Run `tbupload` on a terminal where somebody types y; return exit code, stdout and stderr."""
    terminal, stdin = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tbupload", *command],
        env=uploader.environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.write(terminal, answers)
    out, err = process.communicate(timeout=60)
    for each in (terminal, stdin):
        os.close(each)
    return process.returncode, out, err


def test_confirmation_asks_for_frozen_links(uploader, reader, first):
    shared = [uploader.run("share", first, "--frozen") for _ in range(2)]
    assert [each.code for each in shared] == [0, 0]
    code, out, err = confirm(uploader, "delete", first, answers=b"y\ny\n")
    assert f"Delete experiment {first} (" in err
    assert "It has 2 frozen links, each with a copy of its data. Keep them?" in err
    assert (code, out) == (0, f"deleted {first}\n")
    copy = urlsplit(shared[0].out.strip())
    token = dict(parse_qsl(copy.query))["token"]
    shown = reader.http.get(copy.path, headers={"Authorization": f"Bearer {token}"})
    assert shown.status_code == 200


def test_confirmation_tells_series_and_points(uploader, reader, first):
    command = ["delete", first, "--run", "kept", "--run", RUN, "--json"]
    code, out, err = confirm(uploader, *command)
    runs = f"runs 'kept', {RUN!r} of experiment {first}"
    assert f"Delete {runs}, with 2 series and 22 points? This cannot be undone." in err
    assert code == 0
    assert json.loads(out)["runs"] == ["kept", RUN]
    assert reader.scalars(first) == {}
