"""`tbupload run -- command`: the command as it is without, the upload beside it, and its record."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import psutil
import pytest

from support.source_code import ROOT
from support.uploading import wait_until

TRAIN = f"""
import os, signal, subprocess, sys, time
from pathlib import Path
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT / "uploader")!r}]
from support import event_files

def write(steps):
    events = [event_files.scalar_event("loss", step, 1.0) for step in steps]
    event_files.write_records(Path("runs/a/tfevents.1"), events, append=True)
"""


@pytest.fixture
def start(uploader, tmp_path):
    """Start `tbupload run` with options, and with Python source or other words as the command."""
    started = []

    def start(*options, source=None, command=(), logdir="runs", server=None, **more):
        if source is not None:
            (tmp_path / "train.py").write_text(TRAIN + textwrap.dedent(source))
            command = (sys.executable, "train.py", *command)
        environment = uploader.environment()
        if server is not None:
            environment["TBHUB_SERVER"] = server
        fast = ("--logdir", logdir, "--poll-seconds", "0.05")
        process = subprocess.Popen(
            [sys.executable, "-m", "tbupload", "run", *fast, *options, "--", *command],
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": str(ROOT / "uploader")},
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            | more,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for each in uploaders_of(process):
            each.kill()
        process.kill()
        process.communicate()


def end(process, stdin=None):
    """Wait for the end; return exit code, stdout and stderr."""
    out, err = process.communicate(stdin, timeout=300)
    return process.returncode, out, err.decode()


def uploaders_of(process):
    """Return the uploader processes that it has started."""
    try:
        children = psutil.Process(process.pid).children()
        return [each for each in children if "--commands-from-stdin" in each.cmdline()]
    except psutil.NoSuchProcess:
        return []


def only_upload(reader):
    (experiment,) = reader.experiments()
    (upload,) = reader.get(experiment["experiment_id"], "uploads")["uploads"]
    points = reader.get(experiment["experiment_id"], "scalars")["a"]["loss"]["count"]
    return upload, points


@pytest.mark.parametrize(
    ("how", "code", "status", "detail"),
    [
        ("sys.exit(3)", 3, "failed", "exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed", "SIGKILL"),
    ],
)
def test_run_uploads_and_records_the_end(start, reader, how, code, status, detail):
    source = f"""
        write(range(10))
        print(sys.stdin.read())
        print("problem", file=sys.stderr, flush=True)
        write(range(10, 20))
        sys.stdout.flush()
        {how}
    """
    process = start(source=source, command=("--lr=0.1",), stdin=subprocess.PIPE)
    ended, out, err = end(process, b"from stdin")
    assert (ended, out) == (code, b"from stdin\n"), err
    assert "problem" in err.splitlines()
    assert "everything is uploaded: http" in err
    upload, points = only_upload(reader)
    assert points == 20
    assert (upload["status"], upload["detail"], upload["status_of"]) == (status, detail, "training")
    assert upload["origin"]["command"] == f"{Path(sys.executable).name} train.py --lr=0.1"
    assert not upload["origin"].keys() & {"python", "console", "git_diff"}
    assert upload["packages"] == []


def test_console_and_git_diff_are_recorded_masked(start, reader, tmp_path):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", *identity, *words]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "config.py").write_text("lr = 0.1\n")
    git("init")
    git("add", "config.py")
    git("commit", "-m", "first")
    (tmp_path / "config.py").write_text("lr = 0.2\napi_key = 'hunter2x'\n")
    source = """
        write(range(10))
        os.write(1, b"first\\n" + bytes(range(256)) + b"\\nsecond\\n")
        os.write(2, b"\\x1b[31m--password hunter2x\\x1b[0m\\nlast")
    """
    code, out, err = end(start("--console", "3", "--git-diff", source=source))
    assert code == 0, err
    assert out == b"first\n" + bytes(range(256)) + b"\nsecond\n"
    assert "\x1b[31m--password hunter2x\x1b[0m\nlast" in err
    upload, _ = only_upload(reader)
    lines = upload["origin"]["console"].split("\n")
    assert len(lines) == 3
    assert {"second", "--password ***"} & set(lines)
    assert "-lr = 0.1\n+lr = 0.2\n+api_key = ***" in upload["origin"]["git_diff"]
    assert "hunter2x" not in str(upload)


def test_signals_reach_the_command_once(start, reader):
    source = """
        seen = []
        def note(number, _):
            seen.append(number)
            os.write(1, b"%d\\n" % number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, note)
        write(range(10))
        print("ready", flush=True)
        while len(seen) < 3:
            time.sleep(0.05)
        sys.exit(7)
    """
    process = start(source=source)
    assert process.stdout.readline() == b"ready\n"
    wait_until(reader.experiments)
    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        assert process.stdout.readline() == b"%d\n" % number
    code, out, err = end(process)
    assert (code, out) == (7, b""), err
    assert only_upload(reader)[1] == 10


def test_ctrl_c_twice_reaches_a_command_on_a_terminal_twice(start, reader):
    source = """
        seen = []
        def note(number, _):
            seen.append(number)
            os.write(1, b"seen %d\\n" % len(seen))
        signal.signal(signal.SIGINT, note)
        write(range(10))
        print("ready", flush=True)
        while len(seen) < 2:
            time.sleep(0.05)
        time.sleep(1)  # no event tells that a third one does not come
        print("all", len(seen), flush=True)
        sys.exit(5)
    """
    leader, follower = os.openpty()
    # setsid(1) makes the terminal the one of the session: so its key sends SIGINT to the group.
    process = start(
        source=source, stdin=follower, preexec_fn=lambda: (os.setsid(), _take_terminal(follower))
    )
    os.close(follower)
    assert process.stdout.readline() == b"ready\n"
    wait_until(reader.experiments)
    for count in (1, 2):
        os.write(leader, b"\x03")
        assert process.stdout.readline() == b"seen %d\n" % count
    code, out, err = end(process)
    assert (code, out) == (5, b"all 2\n"), err
    assert only_upload(reader)[1] == 10
    os.close(leader)


def _take_terminal(descriptor):
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def test_server_that_is_away_changes_nothing(start):
    source = "write(range(10)); print('done'); sys.exit(4)"
    options = ("--end-seconds", "1", "--console")
    process = start(*options, source=source, server="http://127.0.0.1:9")
    code, out, err = end(process)
    psutil.Process(int(re.search(r"process (\d+) is still sending", err)[1])).kill()
    assert (code, out) == (4, b"done\n"), err
    assert "if it does not finish, run: tbupload --logdir=runs" in err
    assert "--one-shot" in err


def test_signal_after_the_end_ends_the_wait(start):
    process = start(source="write(range(10)); sys.exit(4)", server="http://127.0.0.1:9")
    while b"Ctrl-C ends the wait" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    code, _, err = end(process)
    psutil.Process(int(re.search(r"process (\d+) is still sending", err)[1])).kill()
    assert code == 4, err
    assert "run: tbupload --logdir=runs" in err


def test_killed_uploader_changes_nothing(start, reader):
    source = "print('ready', flush=True); input(); write(range(10)); sys.exit(6)"
    process = start("--console", source=source, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    wait_until(reader.experiments)
    (uploading,) = uploaders_of(process)
    uploading.kill()
    code, _, err = end(process, b"\n")
    assert code == 6, err
    assert "killed by signal 9" in err
    assert "to send the rest, run: tbupload --logdir=runs" in err


def test_grandchild_that_keeps_the_output_is_not_waited_for(start, tmp_path):
    source = """
        write(range(3))
        reader, writer = os.pipe()
        command = [sys.executable, "-c", "import sys; sys.stdin.read(1)"]
        left = subprocess.Popen(command, stdin=reader, pass_fds=[writer])
        print("x" * 1_000_000, left.pid, flush=True)
    """
    with (tmp_path / "out").open("wb") as out:
        process = start("--console", source=source, stdout=out)
    code, _, err = end(process)
    printed = (tmp_path / "out").read_bytes()
    psutil.Process(int(printed.split()[-1])).kill()
    assert code == 0, err
    assert len(printed) > 1_000_000


def test_command_that_closes_its_output_is_waited_for(start):
    source = "write(range(3)); os.close(1); os.close(2); time.sleep(0.5); os._exit(8)"
    assert end(start("--console", source=source))[0] == 8


def test_command_gets_sigpipe_when_nobody_reads(start):
    process = start("--console", command=("sh", "-c", "yes; exit $?"))
    process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    assert end(process)[0] == 128 + signal.SIGPIPE


def test_command_that_cannot_run_starts_nothing(start, reader):
    for command, code, text in (
        (("no-such-command",), 127, "no-such-command cannot be run: No such file"),
        (("/etc/passwd",), 126, "Permission denied"),
        ((), 2, "there is no command"),
    ):
        ended, out, err = end(start(command=command))
        assert (ended, out) == (code, b""), err
        assert text in err
        assert "Traceback" not in err
    assert reader.experiments() == []


def test_wrong_usage_of_run_is_told(uploader, tmp_path):
    (tmp_path / "file").touch()
    for options, text in (
        (("--logdir", "x", "python", "train.py"), "put -- before the command"),
        (("--", "true"), "TBHUB_LOGDIR"),
        (("--logdir", tmp_path / "file", "--", "true"), "is a file"),
        (("--logdir", "x", "--json", "--", "true"), "stdout is that of the command"),
        (("--logdir", "x", "--console", "0", "--", "true"), "from 1 to 1,000"),
        (("--logdir", "x", "--no-origin", "--git-diff", "--", "true"), "exclude each other"),
        (("--logdir", "x", "--new", "--experiment", "y", "--", "true"), "exclude each other"),
    ):
        ended = uploader.run("run", *options)
        assert (ended.code, text in ended.err) == (2, True), ended.err
