"""RustBoard, TensorBoard's data server, over the same files."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import tensorboard_data_server
from machine import cpu_seconds

SECONDS_MAX = 600

_CYCLE = re.compile(r"Finished load cycle \(([\d.]+)(µs|ms|s)\)")
_UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Load:
    """A load cycle: how long, and how much CPU time the whole process used until its end."""

    seconds: float
    cpu_seconds: float


def load_with_rustboard(logdir: Path, log: Path, *, checksum: bool) -> Load:
    """RustBoard's first load cycle of the logdir, by its log; fails when the log complains of the
    files.
    """
    options = [
        "--port",
        "0",
        "--reload",
        "once",
        "-vv",
        "--checksum" if checksum else "--no-checksum",
    ]
    command = [tensorboard_data_server.server_binary(), "--logdir", str(logdir), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        return Load(_first_cycle(process, log), cpu_seconds(process.pid))
    finally:
        process.kill()
        process.wait()


def _first_cycle(process: subprocess.Popen, log: Path) -> float:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        content = log.read_text()
        if match := _CYCLE.search(content):
            assert " WARN " not in content, content
            assert " ERROR " not in content, content
            return float(match[1]) * _UNITS[match[2]]
        assert process.poll() is None, content
        time.sleep(0.02)
    raise TimeoutError(log.read_text())
