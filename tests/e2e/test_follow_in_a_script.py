"""`with tbupload.follow(...)` in a training script: everything arrives, and no error reaches the
training.
"""

import inspect
import os
import re
import signal
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

import tbupload
from support import event_files
from support.subprocesses import run_to_end
from support.uploading import lines_without_wait, wait_until
from tbupload.recording.announcement import sentence

ROOT = Path(__file__).parents[2]


def examples():
    """Return every example of `tbupload.follow`, in its docstring, the package's and the README,
    each once.
    """
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for text in (tbupload.__doc__, inspect.getdoc(tbupload.follow)):
        blocks += [
            textwrap.dedent(block)
            for block in re.findall(r"(?:^(?: {4}.*)?\n)+", text, re.MULTILINE)
        ]
    return sorted({block.strip() for block in blocks if "tbupload.follow" in block})


@pytest.fixture
def follow(configured):  # noqa: ARG001 - it sets the variables
    """`tbupload.follow`; what it started is killed if the test has not ended it."""
    followed = []

    def follow(*arguments, **options):
        followed.append(tbupload.follow(*arguments, poll_seconds=0.05, **options))
        return followed[-1]

    yield follow
    for upload in followed:
        if upload.is_running:
            process_of(upload).kill()
            upload.stop()


def process_of(upload):
    return psutil.Process(upload._process._process.pid)


def test_there_are_examples_to_run():
    assert examples()


@pytest.mark.parametrize("example", examples())
def test_every_example_uploads_what_training_writes(run_script, reader, example):
    (shown := run_script(example)).check_returncode()
    (experiment,) = reader.experiments()
    assert shown.stdout == f"{experiment['url']}\n", shown.stderr
    assert experiment["name"] in example
    wait_until(lambda: reader.count(experiment["experiment_id"]) == 10)
    assert lines_without_wait(shown.stderr) == [
        f"tbupload: {sentence(is_script=True, is_training=True)}"
    ]


def test_follow_block_returns_and_wait_proves_the_upload(
    follow, uploader, reader, logdir, monkeypatch
):
    monkeypatch.delenv("TBHUB_TOKEN")
    with follow(logdir, token=uploader.token) as upload:
        assert upload.is_running
        assert upload.result is None
        assert upload.url.endswith(f"/experiment/{upload.experiment_id}/")
        assert_shows_no_token_and_gives_way(upload, uploader.token)
        event_files.append_scalars(logdir, range(10))
    assert (upload.is_running, upload.result) == (True, None)
    for total in (10, 20):
        assert upload.wait() is upload.result
        assert upload.result.is_complete
        assert (upload.result.exit_code, upload.result.scalars, upload.result.runs) == (0, total, 1)
        assert upload.result.url == upload.url
        assert reader.count(upload.experiment_id) == total
        event_files.append_scalars(logdir, range(total, total + 10))  # after the block as well
    assert upload.stop().is_complete
    assert not upload.is_running
    assert reader.count(upload.experiment_id) == 30


def assert_shows_no_token_and_gives_way(upload, token):
    process = process_of(upload)
    assert token not in " ".join(process.cmdline()) + repr(upload)
    assert process.nice() == min(19, psutil.Process().nice() + 10)
    assert os.getsid(process.pid) != os.getsid(0)


def test_follow_without_block_uploads_and_start_resumes(follow, reader, logdir):
    upload = follow(logdir)
    event_files.append_scalars(logdir, range(5))
    assert upload.start().start() is upload
    assert upload.stop().is_complete
    first = upload.experiment_id
    event_files.append_scalars(logdir, range(5, 10))
    with upload, upload:
        pass
    assert (upload.stop().exit_code, upload.experiment_id) == (0, first)
    assert upload.stop() == upload.result
    assert reader.count(first) == 10


def test_follow_result_counts_what_is_missing(follow, logdir, caplog):
    event_files.append_scalars(logdir, range(10))
    event_files.spoil_payload(logdir / "run" / "tfevents.1", 3)
    with follow(logdir) as upload:
        pass
    for result in (upload.wait(), upload.stop()):
        assert (result.exit_code, result.is_complete, result.scalars) == (1, False, 9)
        assert list(result.skipped.values()) == [1]
        assert re.search(r"could not be sent: .* \(1\)", result.explanation)
    assert "skipped 1" in caplog.text
    assert "everything is uploaded" not in caplog.text


def test_nothing_that_is_missing_or_wrong_is_raised(follow, logdir, monkeypatch, caplog):
    (logdir / "file").touch()
    with (
        follow(logdir, token="tbh_wrong" * 5) as refused,
        follow(logdir / "file") as no_directory,
        follow(logdir, description="\0") as not_startable,
    ):
        monkeypatch.delenv("TBHUB_SERVER")
        with follow(logdir) as nowhere:
            pass
    for upload, code, why in (
        (refused, 1, "tbupload login"),
        (no_directory, 2, "is a file"),
        (not_startable, None, "could not be started"),
        (nowhere, 2, "no server"),
    ):
        upload.stop()
        assert (upload.url, upload.is_running, upload.result.exit_code) == (None, False, code)
        assert why in upload.result.explanation
        assert why in caplog.text


def test_logdir_that_never_comes_is_no_loss(follow, tmp_path):
    with follow(tmp_path / "never") as upload:
        assert upload.url
    assert (upload.wait().exit_code, upload.result.scalars) == (0, 0)
    assert (upload.stop().exit_code, upload.result.scalars) == (0, 0)
    assert not (tmp_path / "never").exists()


def test_arguments_of_call_itself_are_checked_at_once(logdir):
    for arguments in (
        {"logdirs": 1},
        {"name": 1},
        {"token": b"x"},
        {"plugins": [1]},
        {"include_runs": re.compile("")},
    ):
        with pytest.raises(TypeError):
            tbupload.follow(logdir, **arguments)
    with pytest.raises(TypeError):
        tbupload.follow(None)
    with pytest.raises(ValueError, match="format"):
        tbupload.follow(logdir, poll_seconds="often")
    for arguments, said in (
        ({"plugins": "scalar"}, "did you mean scalars"),
        ({"plugins": ["images", "scalar"]}, "did you mean scalars"),
        ({"name": "a\nb"}, "name: a name is one line"),
        ({"experiment_name": "a\nb"}, "experiment_name: a name is one line"),
        ({"experiment_name": " "}, "experiment_name is empty"),
    ):
        with pytest.raises(ValueError, match=said):
            tbupload.follow(logdir, **arguments)
    with pytest.raises(ValueError, match="exclude_runs is not a valid regular expression"):
        tbupload.follow(logdir, exclude_runs="(")


def test_follow_reports_dead_uploader_and_stops_nothing(follow, logdir, caplog):
    with follow(logdir) as upload:
        assert upload.url
        process_of(upload).kill()
        wait_until(lambda: "exited unexpectedly (killed by signal 9)" in caplog.text)
        assert not upload.is_running
    assert upload.result.exit_code == -signal.SIGKILL
    assert f"--experiment={upload.experiment_id}" in upload.result.explanation


def test_follow_ends_when_training_with_forks_is_killed(run_script, reader, tmp_path):
    ended = run_script(
        """
        end_soon()
        upload = tbupload.follow("runs")
        process = upload._process._process
        print(upload.experiment_id, process.pid, flush=True)
        if os.fork() == 0:  # a worker that outlives the training
            with upload:
                pass  # and is not the one to end its upload
            for pipe in (process.stdin, process.stdout, process.stderr):
                assert os.fstat(pipe.fileno()).st_rdev == os.stat(os.devnull).st_rdev
            assert (upload.is_running, upload.url, upload.stop()) == (False, upload.url, None)
            assert upload.wait() is None
            for descriptor in (1, 2):
                os.close(descriptor)
            print(os.getpid(), file=open("worker", "w"), flush=True)
            time.sleep(60)
        while not os.path.exists("worker") or not open("worker").read():
            time.sleep(0.01)
        assert upload.is_running
        train("runs")
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    experiment_id, process_id = ended.stdout.split()
    worker = psutil.Process(int((tmp_path / "worker").read_text()))
    try:
        wait_until(lambda: not is_alive(int(process_id)))
        assert worker.is_running()
    finally:
        worker.kill()
    assert reader.count(experiment_id) == 10


def is_alive(process_id):
    """Return whether the process runs; a zombie does not."""
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_importing_it_loads_no_other_package():
    source = "import sys, tbupload; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = run_to_end([sys.executable, "-c", source], check=True).stdout
    assert not {"numpy", "google", "urllib3", "tqdm", "tbwire"} & set(re.findall(r"\w+", loaded))
