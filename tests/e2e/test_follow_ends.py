"""How an upload of `tbupload.follow` ends: with the training and not before, alone, or replaced."""

import json
import os
import signal
import time

import psutil
import pytest

import tbupload
from support.event_files import append_scalars
from support.flaky_proxy import flaky_proxy
from support.training_process import start_script
from support.uploading import SECONDS_MAX, wait_until
from tbupload.recording.announcement import sentence


@pytest.fixture
def start(uploader, tmp_path):
    """Start Python source as a training in `tmp_path`; it is killed after the test."""
    started = []

    def start(source, **options):
        started.append(start_script(uploader, tmp_path, source, **options))
        return started[-1]

    yield start
    for training in started:
        training.kill()
        training.communicate()


@pytest.fixture
def followed(configured):  # noqa: ARG001 - it sets the variables
    """`tbupload.follow` of this process; what it started is stopped after the test."""
    uploads = []

    def follow(logdir, **options):
        uploads.append(tbupload.follow(logdir, poll_seconds=0.05, **options))
        return uploads[-1]

    yield follow
    for upload in uploads:
        upload.stop()


def has_ended(process_id):
    try:
        return psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def read_until(stream, words):
    """Return the lines of a stream up to the first one with these words."""
    lines = []
    while not (lines and words in lines[-1]):
        lines.append(stream.readline())
        assert lines[-1], lines
    return "".join(lines)


def uploader_of(training):
    experiment_id, process_id = training.stdout.readline().split()
    return experiment_id, int(process_id)


def test_follow_waits_for_quiet_files_and_logs_its_end(start, reader, tmp_path):
    training = start(
        """
        with tbupload.follow("runs", end_seconds=0) as upload:
            print(upload.experiment_id, upload._process._process.pid)
        """
    )
    out, err = training.communicate(timeout=SECONDS_MAX)
    experiment_id, process_id = out.split()
    assert err.splitlines() == [f"tbupload: {sentence(is_script=True, is_training=True)}"]
    append_scalars(tmp_path / "runs", range(10))  # by another process of the same training
    wait_until(lambda: reader.count(experiment_id) == 10)
    assert not has_ended(int(process_id))
    wait_until(lambda: has_ended(int(process_id)))
    title, done = (tmp_path / "follow.log").read_text().splitlines()
    assert f"process {training.pid} has ended; runs" in title
    assert {"event": "done", "scalars": 10, "growing": False}.items() <= json.loads(done).items()


def test_follow_without_server_delays_nothing(start, live_service):
    with flaky_proxy(live_service.url, ["503"] * 1000) as proxy:
        training = start(
            """
            with tbupload.follow("runs", end_seconds=0) as upload:
                print(upload.url)
                train()
            print(upload.wait(0.1).exit_code)
            print(upload._process._process.pid, flush=True)
            """,
            TBHUB_SERVER=proxy,
        )
        out, err = training.communicate(timeout=SECONDS_MAX)
        psutil.Process(int(out.split()[-1])).kill()
    assert out.split()[:2] == ["None", "None"], err
    assert "waiting" not in err
    assert "is still sending the rest" in err


def test_exit_waits_for_server_that_has_not_answered_yet(start, reader, live_service):
    with flaky_proxy(live_service.url, ["503"] * 4 + [""] * 1000) as proxy:
        training = start(
            """
            upload = tbupload.follow("runs", end_seconds=60)
            print(upload._process._process.pid, flush=True)
            train()
            """,
            TBHUB_SERVER=proxy,
        )
        out, err = training.communicate(timeout=SECONDS_MAX)
        psutil.Process(int(out)).kill()
    assert "is still sending the rest" not in err
    listed = reader.experiments()
    assert [each["points"] for each in listed] == [10]


def test_exit_by_default_does_not_wait_long_for_absent_server(start, live_service, tmp_path):
    (tmp_path / "comm").write_text("sh\n")  # of a container
    with flaky_proxy(live_service.url, ["503"] * 1000) as proxy:
        training = start(
            """
            from tbupload.background_upload import uploaders
            from tbupload.integrations.training_upload import TrainingUpload
            uploaders.EXIT_SECONDS, uploaders.ANSWER_SECONDS = 10_000.0, 1.0
            uploaders.INIT_NAME = Path("comm")
            callback = TrainingUpload()
            callback.begin("runs")
            upload = callback.upload
            callback.end()
            print(upload._process._process.pid, flush=True)
            train()
            """,
            TBHUB_SERVER=proxy,
        )
        out, err = training.communicate(timeout=SECONDS_MAX)
        psutil.Process(int(out)).kill()
    assert "waiting up to 1 s for the server to answer" in err
    assert "is still sending the rest" in err


def test_second_ctrl_c_prints_no_traceback(start, live_service):
    with flaky_proxy(live_service.url, ["", *["503"] * 1000]) as proxy:
        training = start(
            """
            with tbupload.follow("runs", end_seconds=60) as upload:
                atexit.register(print, "exit", flush=True)
                train()
                print(upload.experiment_id, upload._process._process.pid, flush=True)
                time.sleep(60)
            """,
            TBHUB_SERVER=proxy,
        )
        _, process_id = uploader_of(training)
        os.kill(training.pid, signal.SIGINT)
        assert training.stdout.readline() == "exit\n"
        err = read_until(training.stderr, "Ctrl-C ends the wait")
        os.kill(training.pid, signal.SIGINT)
        err += training.communicate(timeout=SECONDS_MAX)[1]
        psutil.Process(process_id).kill()
    assert err.count("Traceback") == 1
    assert err.count("KeyboardInterrupt") == 1
    assert "interrupted; the rest is sent in the background" in err
    assert training.returncode == -signal.SIGINT


def test_follow_prints_no_warning_at_exit_in_development_mode(start):
    training = start(
        'upload = tbupload.follow("runs", end_seconds=0); upload.url', python_options=("-X", "dev")
    )
    _, err = training.communicate(timeout=SECONDS_MAX)
    assert err.splitlines() == [f"tbupload: {sentence(is_script=True, is_training=True)}"]


def test_follow_continues_while_training_is_stopped(start, reader, tmp_path):
    training = start(
        """
        end_soon()
        with tbupload.follow("runs", poll_seconds=0.05, end_seconds=0) as upload:
            print(upload.experiment_id, upload._process._process.pid, flush=True)
            wait_for("go")
            train()
        """
    )
    experiment_id, process_id = uploader_of(training)
    training.send_signal(signal.SIGSTOP)
    append_scalars(tmp_path / "runs", range(3), run="other")
    wait_until(lambda: reader.count(experiment_id, "other") == 3)
    # No event tells that the upload continues: this is longer than files have to be quiet at its end.
    time.sleep(1.5)
    assert not has_ended(process_id)
    (tmp_path / "go").touch()
    training.send_signal(signal.SIGCONT)
    wait_until(lambda: reader.count(experiment_id) == 10)


def test_terminated_uploader_waits_for_last_points_of_training(start, reader):
    training = start(
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        with tbupload.follow("runs", poll_seconds=0.05, end_seconds=0) as upload:
            try:
                print(upload.experiment_id, upload._process._process.pid, flush=True)
                time.sleep(60)
            finally:
                time.sleep(1)
                train()
        """
    )
    experiment_id, process_id = uploader_of(training)
    for process in (training.pid, process_id):  # as a batch system does
        os.kill(process, signal.SIGTERM)
    wait_until(lambda: has_ended(process_id))
    assert reader.count(experiment_id) == 10


def test_same_call_again_continues_same_upload(followed, logdir):
    with followed(logdir, name="a") as first:
        append_scalars(logdir, range(10))
    with followed(logdir, name="a") as second:
        append_scalars(logdir, range(10, 20))
    assert second._process is first._process
    assert second.wait().scalars == 20
    third = followed(logdir, name="a", new=True)
    assert third.experiment_id != second.experiment_id


def test_other_call_for_same_logdir_ends_earlier_upload(followed, reader, logdir):
    with followed(logdir, name="a") as first:
        append_scalars(logdir, range(10))
        assert first.url
    with followed(logdir, name="b") as second:
        wait_until(lambda: not first.is_running)
        append_scalars(logdir, range(10, 20))
    assert first.result.is_complete
    assert second.wait().is_complete
    assert reader.count(first.experiment_id) == 10
    assert reader.count(second.experiment_id) == 20
