"""What is recorded with real uploads on a live service: machine, environment, end, and metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from datetime import datetime
from pathlib import Path

import pytest

import tbupload
from support import event_files
from support.uploading import SECONDS_MAX, Reader, lines_without_wait, wait_until

TESTS = Path(__file__).parents[1]
HAS_EXIT_CODES = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
import tbupload
from support import event_files
from tbupload.background_upload import process as uploader_process
uploader_process.FIXED_OPTIONS += ("--quiet-seconds=1",)

def train(steps=range(10), logdir="runs"):
    events = [event_files.scalar_event("loss", step, float(step)) for step in steps]
    event_files.write_records(Path(logdir, "run", "tfevents.1"), events, append=True)
"""


@pytest.fixture
def written(logdir):
    """A log directory with one run."""
    write(logdir)
    return logdir


def write(logdir, steps=range(5)):
    events = [event_files.scalar_event("loss", step, 1.0) for step in steps]
    event_files.write_records(logdir / "run" / "tfevents.1", events, append=True)


@pytest.fixture
def run_script(uploader, tmp_path):
    """Run Python source as a training script; return it ended, with the experiment it prints."""

    def run_script(source, *arguments, **variables):
        path = tmp_path / "training.py"
        path.write_text(PRELUDE + textwrap.dedent(source))
        before = uploader.environment()
        paths = os.pathsep.join([str(TESTS), *filter(None, [before.get("PYTHONPATH")])])
        return subprocess.run(
            [sys.executable, path, *arguments],
            cwd=tmp_path,
            env=before | {"PYTHONPATH": paths} | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            start_new_session=True,
        )

    return run_script


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
    write(written, range(5, 9))
    (written / "run" / "tfevents.2").write_bytes(b"no event file" * 10)
    assert uploader.run("--logdir", written, "--one-shot").code == 1
    statuses = [each["status"] for each in uploads_of(reader, ended.experiment_id)]
    assert statuses == ["failed", "finished"]


@pytest.mark.parametrize("how", ["option", "variable", "config"])
def test_opt_out_records_nothing(uploader, reader, written, tmp_path, monkeypatch, run_script, how):
    options = ["--no-origin"] if how == "option" else []
    if how == "config":
        (tmp_path / "config.toml").write_text("no_origin = true\n")
    if how == "variable":
        before = uploader.environment()
        monkeypatch.setattr(
            type(uploader), "environment", lambda _: before | {"TBHUB_NO_ORIGIN": "1"}
        )
    ended = uploader.run("--logdir", written, "--one-shot", *options)
    script = run_script(
        f"""
        with tbupload.follow("runs", no_origin={how == "option"}) as upload:
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
with tbupload.follow("runs") as upload:
    train()
    print(upload.url, flush=True)
    {inside}
{after}
"""
ALONE = """
upload = tbupload.follow("runs")
train()
print(upload.url, flush=True)
{inside}
"""


@pytest.mark.parametrize(
    ("source", "inside", "after", "status", "detail"),
    [
        (BLOCK, "pass", "", "finished", ""),
        (BLOCK, "raise ValueError('secret')", "", "failed", "ValueError"),
        (BLOCK, "sys.exit(3)", "", "failed", "exit code 3"),
        (BLOCK, "raise SystemExit(0)", "", "finished", ""),
        (BLOCK, "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", "", "killed", "interrupted (SIGINT)"),
        (BLOCK, "pass", "raise ValueError('x')", "failed", "ValueError"),
        (BLOCK, "pass", "sys.exit(4)", "failed", "exit code 4"),
        (ALONE, "pass", "", "finished", ""),
        (ALONE, "raise ValueError('secret')", "", "failed", "ValueError"),
        (ALONE, "sys.exit(3)", "", "failed", "exit code 3"),
        (ALONE, "os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", "", "killed", "interrupted (SIGINT)"),
    ],
)  # fmt: skip
def test_end_of_script_is_recorded(run_script, reader, source, inside, after, status, detail):
    script = run_script(source.format(inside=inside, after=after))
    upload = wait_for_end(reader, script.stdout.split("/experiment/")[1].split("/")[0])
    assert (upload["status"], upload["detail"]) == (status, detail)
    assert "secret" not in json.dumps(upload["detail"])


@pytest.mark.parametrize(
    ("inside", "status", "detail"),
    [
        ("os._exit(5)", "failed", "exit code 5"),
        ("os._exit(0)", "finished", ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "killed", "SIGTERM"),
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


def test_two_blocks_of_one_script_have_their_own_ends(run_script, reader):
    script = run_script(
        """
        for number in range(2):
            try:
                with tbupload.follow(f"runs{number}") as upload:
                    train(logdir=f"runs{number}")
                    print(upload.url)
                    if number == 0:
                        raise ValueError("the first alone")
            except ValueError:
                pass
        """
    )
    first, second = re.findall(r"experiment/(\w+)", script.stdout)
    assert wait_for_end(reader, first)["detail"] == "ValueError"
    assert wait_for_end(reader, second)["status"] == "finished"


@pytest.mark.parametrize("code", [0, 3])
def test_exit_right_after_the_call_is_recorded(run_script, reader, code):
    """`os._exit` runs nothing of Python any more, and the uploader has hardly started."""
    run_script(f"""
        train()
        tbupload.follow("runs", name="soon{code}")
        os._exit({code})
    """)
    experiments = wait_until(lambda: reader.http.get("/api/v1/experiments").json()["experiments"])
    upload = wait_for_end(reader, experiments[0]["experiment_id"])
    known = ("failed", "exit code 3") if code else ("finished", "")
    expected = known if HAS_EXIT_CODES else ("unknown", "ended without saying how")
    assert (upload["status"], upload["detail"]) == expected


def test_status_is_recorded_before_a_container_ends(run_script, reader):
    """Where the uploader would be killed with the script, the script waits for that, too."""
    script = run_script(
        """
        upload = tbupload.follow("runs", end_seconds=60)
        train()
        print(upload.url, upload._process._process.pid)
        sys.exit(7)
        """
    )
    (upload,) = uploads_of(reader, script.stdout.split("/experiment/")[1].split("/")[0])
    assert (upload["status"], upload["detail"]) == ("failed", "exit code 7")


def test_watched_process_is_recorded(uploader, reader, written):
    code = "import sys; sys.stdin.read(); raise SystemExit(6)"
    command = [sys.executable, "-c", code, "--token", "hunter2x"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as training:
        options = ("--end-with-process", training.pid, "--quiet-seconds", "0.5")
        with uploader.follow(written, *options) as following:
            experiment_id = following.wait_for_experiment()
            (running,) = wait_until(lambda: uploads_of(reader, experiment_id))
            assert (running["status"], running["status_of"]) == ("running", "training")
            assert "sys.stdin.read()" in running["origin"]["command"]
            assert "hunter2x" not in running["origin"]["command"]
            training.stdin.close()
            training.wait()
            assert following.wait().code == 0
    (upload,) = uploads_of(reader, experiment_id)
    expected = ("failed", "exit code 6") if HAS_EXIT_CODES else ("unknown", "ended without saying how")  # fmt: skip
    assert (upload["status"], upload["detail"]) == expected


def test_stopped_upload_of_running_training_is_unknown(uploader, reader, written):
    options = ("--end-with-process", os.getpid())
    with uploader.follow(written, *options) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: uploads_of(reader, experiment_id))
        following.stop(signal.SIGINT)
    (upload,) = uploads_of(reader, experiment_id)
    assert (upload["status"], upload["detail"]) == ("unknown", "the upload was stopped before")


def test_uploads_of_several_machines_have_one_record_each(uploader, reader, written):
    for _ in range(2):
        ended = uploader.run("--logdir", written, "--one-shot", "--experiment-name", "sweep")
        write(written, range(10, 20))
    uploads = uploads_of(reader, ended.experiment_id)
    assert len({each["upload_id"] for each in uploads}) == 2
    shown = uploader.run("show", ended.experiment_id)
    lines = [line for line in shown.out.splitlines() if line.startswith("upload ")]
    assert len(lines) == 2
    assert f"upload {uploads[0]['upload_id'][:8]}: upload finished, started " in lines[0]
    assert lines[0].endswith(f"on {socket.gethostname()}")
    as_json = json.loads(uploader.run("show", ended.experiment_id, "--json").out)
    assert as_json["uploads"] == uploads


def test_removed_origin_stays_removed_while_following(uploader, reader, written):
    with uploader.follow(written) as following:
        experiment_id = following.wait_for_experiment()
        wait_until(lambda: uploads_of(reader, experiment_id))
        assert uploader.run("update-metadata", experiment_id, "--remove-origin").code == 0
        write(written, range(5, 9))
        assert following.stop(signal.SIGINT).code == 0
    assert uploads_of(reader, experiment_id) == []
    origin = reader.http.get(f"/api/v1/experiments/{experiment_id}").json()["origin"]
    assert origin == {}


def test_anonymous_link_tells_nothing_of_the_machine(
    uploader, reader, written, tmp_path, monkeypatch
):
    """Neither the API, nor the page, nor an export; also with a run of system metrics."""
    monkeypatch.setenv("LOGNAME", "ada-of-the-machine")
    options = ("--one-shot", "--system-metrics", "--name", "Anonymous")
    ended = uploader.run("--logdir", written, *options)
    (upload,) = uploads_of(reader, ended.experiment_id)
    # Shorter ones, as some names of machines, are in other texts too.
    told = [value for value in upload["origin"].values() if len(value) > 8]
    assert "ada-of-the-machine" in told
    secret = re.compile("|".join(rf"\b{re.escape(value)}(?!\w)" for value in told))
    link = reader.http.post(
        f"/api/v1/experiments/{ended.experiment_id}/links", json={"anonymous": True}
    ).json()

    anonymous = type(uploader)(uploader.server, link["token"], tmp_path)
    api = Reader(uploader.server, link["token"])
    base = f"/api/v1/experiments/{ended.experiment_id}"
    answers = [
        api.http.get(f"{base}{path}").text
        for path in ("", "/uploads", "/runs", "/scalars", "/scalars/data", "/digests", "/streams")
    ]
    answers += [
        api.http.get(f"/experiment/{ended.experiment_id}/{path}").text
        for path in ("", "about", "data/runs", "download/scalars.csv", "download/scalars.parquet")
    ]
    answers.append(anonymous.run("show", ended.experiment_id, "--json").out)
    for form in ("events", "csv"):
        output = tmp_path / f"export-{form}"
        place = ("--experiment", ended.experiment_id, "--output", output)
        assert anonymous.run("export", "--format", form, *place).code == 0
        files = [path for path in output.rglob("*") if path.is_file()]
        assert files
        answers += [str(path.relative_to(output)) for path in files]
        answers += [path.read_text("utf-8", "replace") for path in files]
    api.http.close()
    for answer in answers:
        assert not secret.search(answer), answer[:2_000]
    assert any("system/" in answer for answer in answers)
    assert secret.search(reader.http.get(f"{base}/uploads").text)


def test_unusable_arguments_of_follow_are_errors():
    for wrong in ("often", [1]):
        with pytest.raises((TypeError, ValueError)):
            tbupload.follow("runs", system_metrics=wrong)
