"""`tbservice serve` stops in time, and leaves no process, at whatever point of its start it is."""

import signal
import sys
from pathlib import Path

import psutil
import pytest

from support import slow_start_service
from support.batches import texts
from support.grpc_calls import live_grpc_service
from support.process_kills import workers_of
from support.servers import live_api, live_service
from support.uploading import wait_until

pytestmark = pytest.mark.own_database

WAIT_SECONDS = slow_start_service.WAIT_SECONDS
STOP_SECONDS_MAX = WAIT_SECONDS - 10
"""Less than a start takes that waits."""


def stop(live, number=signal.SIGTERM):
    """Send the signal; assert that the service and all its processes end in time."""
    family = psutil.Process(live.process.pid).children(recursive=True)
    live.process.send_signal(number)
    live.process.wait(STOP_SECONDS_MAX)
    _, left = psutil.wait_procs(family, STOP_SECONDS_MAX)
    commands = [process.cmdline() for process in left]
    for process in left:
        process.kill()
    assert not commands


def test_stop_waits_for_no_worker_that_is_starting(settings, tmp_path):
    slow = tmp_path / "slow"
    more = {"SLOW_FILE": str(slow), "TBHUB_WORKERS": "2"}
    program = [Path(slow_start_service.__file__)]
    with live_grpc_service(settings, tmp_path, program=program, **more) as (live, _):
        wait_until(lambda: len(workers_of(live)) == 2)
        slow.touch()
        workers_of(live)[0].kill()
        wait_until(slow.read_text)
        stop(live)
        assert live.process.returncode == 0


@pytest.mark.parametrize(("workers", "number"), [("1", signal.SIGTERM), ("2", signal.SIGKILL)])
def test_no_process_outlives_service_that_is_starting(settings, tmp_path, workers, number):
    """The programs that handler processes are forked from still import their libraries."""
    imported = tmp_path / "imported"
    (tmp_path / "optuna.py").write_text(
        f"import time\nopen({str(imported)!r}, 'w').close()\ntime.sleep({WAIT_SECONDS})"
    )
    more = {"PYTHONPATH": str(tmp_path), "TBHUB_WORKERS": workers}
    with live_grpc_service(settings, tmp_path, python=sys.executable, **more) as (live, _):
        service = psutil.Process(live.process.pid)
        wait_until(
            lambda: (
                len([each for each in service.children(recursive=True) if is_fork_server(each)])
                >= 2  # more, when one has forked what it handles requests with
            )
        )
        wait_until(imported.exists)
        stop(live, number)


def is_fork_server(process):
    try:
        return "tbservice.handlers.fork_server" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_workers_have_clones_of_one_handler_program(settings, tmp_path):
    """Once that has died, a worker that is new has a program of its own."""
    log, more = tmp_path / "log", {"TBHUB_WORKERS": "2"}
    with live_service(settings, log, python=sys.executable, **more) as live:
        service = psutil.Process(live.process.pid)
        (program,) = [each for each in service.children() if is_fork_server(each)]
        wait_until(lambda: len(program.children()) == 2)
        read_texts(live)
        assert not [each for worker in workers_of(live) for each in worker.children()]
        program.kill()
        before = workers_of(live)
        before[0].kill()
        (new,) = wait_until(lambda: set(workers_of(live)) - set(before))
        wait_until(lambda: any(map(is_fork_server, new.children())))


def read_texts(service):
    """Read texts of TensorBoard's page, which a handler process answers."""
    with live_api(service.url, service.new_owner()) as api:
        experiment = api.new_experiment(texts("note", [0], [b"a text"]))
        path = f"/experiment/{experiment}/data/plugin/text/tags"
        assert api.client.get(path, headers=api.headers).json() == {"train": ["note"]}


def test_hung_worker_is_killed_at_stop(settings, tmp_path):
    """It cannot even force its own exit."""
    with live_grpc_service(settings, tmp_path, TBHUB_WORKERS="2") as (live, _):
        wait_until(lambda: len(workers_of(live)) == 2)
        workers_of(live)[0].suspend()
        stop(live)
        assert live.process.returncode == 0
    assert "did not stop and was killed" in (tmp_path / "log").read_text()
