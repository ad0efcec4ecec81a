"""Live tails over a real server: no point missed or repeated, even when the server is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager

from support import servers as support
from support.batches import scalars, segment, stream
from support.uploading import SECONDS_MAX, Uploader, wait_until
from tbservice.local.embedded.ports import LOOPBACK, choose_ports


@contextmanager
def tailing(uploader, *arguments):
    """Run `tbupload tail --json` until the block ends; yield the process and the lines it has
    printed.
    """
    command = [sys.executable, "-m", "tbupload", "tail", *arguments, "--json"]
    process = subprocess.Popen(
        command,
        env=uploader.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(map(json.loads, process.stdout)))
    reader.start()
    try:
        yield process, lines
    finally:
        process.kill()
        reader.join(SECONDS_MAX)
        process.stdout.close()
        process.stderr.close()
        process.wait()


def write(api, experiment, steps, tag="loss"):
    """Write scalars as a new file, named by its tag and first step."""
    api.write(experiment, segment(stream(file_name=f"{tag}{steps[0]}"), 0, 9, scalars(tag, steps)))


def test_tail_prints_every_point_once_across_restarts(servers, tmp_path):
    port = choose_ports(["service"], {})["service"]
    with ExitStack() as stack:
        url = stack.enter_context(servers.database())
        settings = stack.enter_context(servers.settings(url))
        uploader = Uploader(f"http://{LOOPBACK}:{port}", support.new_owner(url), tmp_path)
        api = stack.enter_context(support.live_api(uploader.server, uploader.token))
        with support.live_service(settings, tmp_path / "first.log", port=port) as live:
            experiment = api.new_experiment()
            write(api, experiment, range(100))
            process, lines = stack.enter_context(
                tailing(uploader, experiment, "--from-start", "--exclude-tags", "no")
            )
            wait_until(lambda: len(lines) == 100)
            write(api, experiment, range(100, 130))
            write(api, experiment, range(5), tag="no")
            wait_until(lambda: len(lines) == 130)
            live.process.kill()
            live.process.wait()
        log = tmp_path / "second.log"
        with support.live_service(settings, log, port=port):
            write(api, experiment, range(130, 150))
            wait_until(lambda: len(lines) == 150)
        assert (
            "Cancel" not in log.read_text()
        )  # the server has not waited in vain for the tail to end
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 0
    assert [line["step"] for line in lines] == list(range(150))
    assert lines[7] == {
        "run": "train",
        "tag": "loss",
        "step": 7,
        "wall_time": 1.7e9 + 7,
        "value": 7 / 3,
    }


def test_tail_of_experiment_that_is_deleted_ends_with_reason(uploader):
    with support.live_api(uploader.server, uploader.token) as api:
        experiment = api.new_experiment()
        write(api, experiment, range(3))
        with tailing(uploader, experiment, "--from-start") as (process, lines):
            wait_until(lambda: len(lines) == 3)
            api.request("DELETE", f"/experiments/{experiment}").raise_for_status()
            assert process.wait(SECONDS_MAX) == 1
            assert "deleted" in process.stderr.read()
