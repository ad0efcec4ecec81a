"""Running the same command again resumes its upload; and what a user sees, on a terminal too."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios

import psutil
import pytest

from support import event_files
from support.flaky_proxy import flaky_proxy
from support.uploading import experiment_id_of, tensorboard_scalars, wait_until


def events_of(out):
    return [json.loads(line) for line in out.splitlines()]


def experiments_of(reader):
    return [each["experiment_id"] for each in reader.experiments()]


@pytest.fixture
def killed(uploader, reader, logdir):
    """The experiment of an upload that was killed after its first ten points."""
    event_files.append_scalars(logdir, range(10))
    with uploader.follow(logdir) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: reader.get(experiment_id, "scalars"))
        following.process.kill()
        following.wait()
    return experiment_id


def test_follow_killed_resumes_its_experiment_and_says_so(uploader, reader, logdir, killed):
    event_files.append_scalars(logdir, range(10, 20))
    with uploader.follow(logdir, "--json") as following:
        wait_until(lambda: reader.count(killed) == 20)
        ended = following.stop()
    first, *_, last = events_of(ended.out)
    assert (first["event"], first["experiment_id"], last["scalars"]) == ("resumed", killed, 10)
    assert f"resuming experiment {killed}" in ended.err
    assert "--new" in ended.err
    assert reader.scalars(killed) == tensorboard_scalars(logdir)


def test_one_shot_given_again_resumes_and_says_nothing_new(uploader, reader, logdir, killed):
    other = uploader.run("--logdir", logdir, "--one-shot", "--include-tags", "lo.*")
    event_files.append_scalars(logdir, range(10, 12))
    finished = uploader.run("--logdir", logdir / "run" / "..", "--one-shot", "--json")
    again = uploader.run("--logdir", logdir, "--one-shot", "--json")
    assert (finished.code, again.code) == (0, 0)
    assert [ended.done["scalars"] for ended in (finished, again)] == [2, 0]
    assert "nothing new" not in finished.err
    assert "nothing new" in again.err
    assert "; --new uploads it" in again.err
    assert killed == finished.experiment_id == again.experiment_id != other.experiment_id
    assert set(experiments_of(reader)) == {killed, other.experiment_id}


def test_one_shot_that_lost_its_server_is_resumed(uploader, reader, live_service, logdir):
    event_files.append_scalars(logdir, range(10))
    with flaky_proxy(
        live_service.url, ["", *["503"] * 1000]
    ) as proxy:  # the experiment is made, and nothing is taken
        arguments = (
            "--logdir",
            logdir,
            "--one-shot",
            "--json",
            "--server",
            proxy,
            "--retry-timeout",
            "1",
        )
        first, second = (uploader.run(*arguments) for _ in range(2))
    assert (first.code, second.code) == (75, 75)
    assert "run the same command again" in first.err
    assert [events_of(ended.out)[0]["event"] for ended in (first, second)] == ["created", "resumed"]
    assert experiments_of(reader) == [first.experiment_id]


def test_two_that_begin_at_once_share_one_experiment(uploader, reader, logdir):
    event_files.append_scalars(logdir, range(100))
    with uploader.follow(logdir) as first, uploader.follow(logdir) as second:
        assert first.wait_for_experiment() == second.wait_for_experiment()
        assert (first.stop().code, second.stop().code) == (0, 0)
    assert reader.scalars(experiment_id_of(first.wait().out)) == tensorboard_scalars(logdir)


@pytest.fixture
def troubled(logdir):
    """A log directory with three unreadable paths and a damaged record."""
    for run in ("run", "bad"):
        event_files.append_scalars(logdir, range(10), run)
    event_files.spoil_payload(logdir / "run" / "tfevents.1", 3)
    event_files.spoil_length_checksum(logdir / "bad" / "tfevents.1", 5)
    (logdir / "text.tfevents").write_text("this is no event file, whatever its name")
    (logdir / "nowhere.tfevents").symlink_to("/nonexistent")
    return logdir


def test_dry_run_ends_at_ctrl_c_and_says_how_far_it_came(uploader, logdir):
    path = logdir / "run" / "tfevents.1"
    path.parent.mkdir()
    path.write_bytes(
        event_files.encode_records(event_files.scalar_event("a", step, 1.0) for step in range(1000))
        * 200
    )
    for number in range(1000):  # more than can be read meanwhile
        (logdir / f"again{number}").symlink_to(path.parent)
    with uploader.follow(logdir, "--dry-run", "--json") as following:
        wait_until(lambda: has_open(following.process.pid, path))
        ended = following.stop(signal.SIGINT)
    assert (ended.code, ended.done["event"], ended.done["error"]) == (130, "failed", "interrupted")
    assert 0 <= ended.done["scalars"] < 1001 * 200_000
    assert "interrupted; counted so far" in ended.err
    assert "Traceback" not in ended.err


def has_open(process_id, path):
    return any(path.samefile(each.path) for each in psutil.Process(process_id).open_files())


def test_terminal_shows_live_lines_and_each_sentence_once(uploader, live_service, troubled):
    with flaky_proxy(live_service.url, ["", "503", "503", "503", ""]) as proxy:
        code, shown = on_a_terminal(uploader, "--logdir", troubled, "--one-shot", "--server", proxy)
    assert code == 1
    text = shown.replace("\r", "\n")
    url = next(line for line in text.splitlines() if "/experiment/" in line)
    live = [line for line in text.split("\n") if "%|" in line]
    assert any("bytes/s" in line and "points" in line for line in live)
    assert text.count(url) > 1
    assert re.search(r"skipped so far: [^,]* \(1\)", text)
    assert text.count("is not an event file") == 1
    assert "named above" in text


def on_a_terminal(uploader, *arguments):
    """Run `tbupload` on a pseudo-terminal; return its exit code and all it wrote there."""
    terminal, ours = pty.openpty()
    termios.tcsetwinsize(ours, (24, 100))
    command = [sys.executable, "-m", "tbupload", *map(str, arguments)]
    process = subprocess.Popen(
        command, env=uploader.environment(), stdin=ours, stdout=ours, stderr=ours
    )
    os.close(ours)
    shown = b""
    with open(terminal, "rb", buffering=0) as reading:  # noqa: PTH123 - a descriptor
        try:
            while chunk := reading.read(65536):
                shown += chunk
        except OSError:  # how Linux says that the other side has closed
            pass
    return process.wait(60), shown.decode()
