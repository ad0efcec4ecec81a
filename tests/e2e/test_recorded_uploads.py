"""Records of real uploads on a live service: machine, environment, end, and metrics."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime

import pytest

from support.event_files import append_scalars
from support.uploading import lines_without_wait, wait_until

HAS_EXIT_CODES = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)


def uploads_of(reader, experiment_id):
    return reader.get(experiment_id, "uploads")["uploads"]


def wait_for_end(reader, experiment_id):
    def ended():
        uploads = uploads_of(reader, experiment_id)
        return uploads if uploads and uploads[0]["status"] != "running" else None

    (upload,) = wait_until(ended)
    return upload


def test_one_shot_records_its_machine_and_end(uploader, reader, written):
    ended = uploader.run("--logdir", written, "--one-shot")
    (line,) = [line for line in ended.err.splitlines() if "records where it comes from" in line]
    assert "--no-origin" in line
    (upload,) = uploads_of(reader, ended.experiment_id)
    assert (upload["status"], upload["status_of"], upload["packages"]) == ("finished", "upload", [])
    for name in ("host", "user", "directory", "command", "platform", "cpus"):
        assert upload["origin"][name], name
        assert name in line.lower() or name == "cpus"
    assert upload["origin"]["host"] == socket.gethostname()
    assert "python" not in upload["origin"]
    assert upload["started_at"] <= upload["ended_at"]

    again = uploader.run("--logdir", written, "--one-shot")
    assert "nothing new" in again.err
    assert len(uploads_of(reader, ended.experiment_id)) == 1
    append_scalars(written, range(5, 9))
    (written / "run" / "tfevents.2").write_bytes(b"no event file" * 10)
    assert uploader.run("--logdir", written, "--one-shot").code == 1
    statuses = [each["status"] for each in uploads_of(reader, ended.experiment_id)]
    assert statuses == ["failed", "finished"]


def test_opt_out_records_nothing(uploader, reader, written, run_script):
    ended = uploader.run("--logdir", written, "--one-shot", "--no-origin")
    script = run_script(
        """
        with tbupload.follow("runs", no_origin=True) as upload:
            train()
            upload.stop()
            print(upload.url)
        """
    )
    assert script.stderr == ""
    for each in (ended.experiment_id, re.search("experiment/(\\w+)", script.stdout)[1]):
        assert uploads_of(reader, each) == []
        assert reader.http.get(f"/api/v1/experiments/{each}").json()["origin"] == {}
    assert "records where" not in ended.err


def test_dry_run_lists_every_field_with_its_value(uploader, reader, written):
    listed = uploader.run("--logdir", written, "--dry-run", "--json")
    recorded = listed.done["recorded"]
    sent = uploader.run("--logdir", written, "--one-shot")
    (upload,) = uploads_of(reader, sent.experiment_id)
    assert recorded["origin"].keys() == upload["origin"].keys()
    assert (recorded["origin"]["host"], recorded["packages"]) == (upload["origin"]["host"], [])
    for name, value in recorded["origin"].items():
        if name != "command":
            assert f"  {name}: {value}" in listed.err.splitlines()
    nothing = uploader.run("--logdir", written, "--dry-run", "--json", "--no-origin")
    assert nothing.done["recorded"] == {}
    assert socket.gethostname() not in nothing.err


def test_follow_records_script_and_its_environment(run_script, reader, tmp_path):
    (tmp_path / "more" / "secretive-1.2.dist-info").mkdir(parents=True)
    (tmp_path / "more" / "secretive-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: secretive\nVersion: 1.2\n"
    )
    began = time.time()
    script = run_script(
        """
        end_soon()
        sys.path.append("more")
        os.environ["WANDB_API_KEY"] = "hunter2x"
        with tbupload.follow("runs") as upload:
            train()
            upload.wait()
            print(upload.url)
        """,
        "--lr=0.1",
        "--api-key",
        "hunter2x",
    )
    assert len(lines_without_wait(script.stderr)) == 1, script.stderr
    assert "records where it comes from (host, user, directory, command" in script.stderr
    assert "packages" in script.stderr
    upload = wait_for_end(reader, script.stdout.split("/experiment/")[1].split("/")[0])
    origin = upload["origin"]
    assert origin["command"] == "training.py --lr=0.1 --api-key '***'"
    assert origin["directory"] == str(tmp_path)
    assert origin["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert {"secretive==1.2"} < set(upload["packages"])
    assert any(each.startswith("numpy==") for each in upload["packages"])
    assert "hunter2x" not in json.dumps(upload)
    assert (upload["status"], upload["status_of"], upload["detail"]) == ("finished", "training", "")
    started, ended = (datetime.fromisoformat(upload[f"{what}_at"]).timestamp() for what in ("started", "ended"))  # fmt: skip
    assert began - 1 <= started <= ended <= time.time()


BLOCK = """
end_soon()
with tbupload.follow("runs") as upload:
    train()
    print(upload.url, flush=True)
    {inside}
{after}
"""
ALONE = """
end_soon()
upload = tbupload.follow("runs")
train()
print(upload.url, flush=True)
{inside}
"""


@pytest.mark.parametrize(
    ("source", "inside", "after", "status", "detail"),
    [
        (BLOCK, "raise ValueError('secret')", "", "failed", "ValueError"),
        (BLOCK, "pass", "sys.exit(4)", "failed", "exit code 4"),
        (ALONE, "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", "", "killed", "interrupted (SIGINT)"),
    ],
)  # fmt: skip
def test_end_of_script_is_recorded(run_script, reader, source, inside, after, status, detail):
    script = run_script(source.format(inside=inside, after=after))
    experiment_id = script.stdout.split("/experiment/")[1].split("/")[0]
    upload = wait_for_end(reader, experiment_id)
    assert (upload["status"], upload["detail"]) == (status, detail)
    assert "secret" not in json.dumps(upload["detail"])
    assert reader.count(experiment_id) == 10
    last = lines_without_wait(script.stderr)[-1].partition(":")[0]
    ends = {(1, "ValueError"), (4, "tbupload"), (-signal.SIGINT, "KeyboardInterrupt")}
    assert (script.returncode, last) in ends, script.stderr


@pytest.mark.parametrize(
    ("inside", "status", "detail"),
    [
        ("os._exit(5)", "failed", "exit code 5"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
    ],
)
def test_script_that_vanishes_is_told_by_the_kernel_or_unknown(
    run_script, reader, inside, status, detail
):
    script = run_script(ALONE.format(inside=inside))
    upload = wait_for_end(reader, script.stdout.split("/experiment/")[1].split("/")[0])
    if not HAS_EXIT_CODES:
        status, detail = "unknown", "ended without saying how"
    assert (upload["status"], upload["detail"]) == (status, detail)
    assert upload["ended_at"] is not None


CONSOLE = """
import logging, urllib.request
logging.basicConfig(format="%(message)s")
end_soon()
upload = tbupload.follow("runs", console=True)
train()
print(upload.url, flush=True)
if os.fork() == 0:
    print("of a fork", flush=True)
    os._exit(0)
os.wait()
print("password=hunter2x")
logging.getLogger("other").warning("from a logger")
{end}
"""
SEEN_AND_KILLED = """
address = upload.url.replace("/experiment/", "/api/v1/experiments/") + "uploads"
bearer = {"Authorization": "Bearer " + os.environ["TBHUB_TOKEN"]}
while b"from a logger" not in urllib.request.urlopen(urllib.request.Request(address, headers=bearer)).read():
    time.sleep(0.1)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("end", "last"),
    [("raise ValueError('no')", "ValueError: no"), (SEEN_AND_KILLED, "from a logger")],
)
def test_console_of_script_is_recorded(run_script, reader, end, last):
    script = run_script(CONSOLE.format(end=end))
    assert "of a fork" in script.stdout
    experiment_id = script.stdout.split("/experiment/")[1].split("/")[0]
    lines = wait_for_end(reader, experiment_id)["origin"]["console"].split("\n")
    assert {"password=***", "from a logger"} <= set(lines)
    assert lines[-1] == last
    assert "of a fork" not in lines


def test_watched_process_is_recorded(uploader, reader, written):
    code = "import sys; sys.stdin.read(); raise SystemExit(6)"
    command = [sys.executable, "-c", code, "--token", "hunter2x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as training:
        options = ("--end-with-process", training.pid, "--quiet-seconds", "0.5")
        with uploader.follow(written, *options) as following:
            experiment_id = following.wait_for_experiment()
            (running,) = wait_until(lambda: uploads_of(reader, experiment_id))
            assert (running["status"], running["status_of"]) == ("running", "training")
            masked = shlex.join([sys.executable, "-c", "***", "--token", "***"])
            assert running["origin"]["command"] == masked
            training.stdin.close()
            training.wait()
            assert following.wait().code == 0
    (upload,) = uploads_of(reader, experiment_id)
    expected = ("failed", "exit code 6") if HAS_EXIT_CODES else ("unknown", "ended without saying how")  # fmt: skip
    assert (upload["status"], upload["detail"]) == expected
