"""The same files read by TensorBoard's two readers: the one in Python, and RustBoard."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import tensorboard_data_server
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

SECONDS_MAX = 300


def load_with_python(directory: Path) -> tuple[int, float]:
    """Points and seconds of the accumulator that feeds TensorBoard's page, all points kept, for one run's files."""
    began = time.perf_counter()
    accumulator = EventAccumulator(str(directory), tensor_size_guidance={"scalars": 0})
    accumulator.Reload()
    seconds = time.perf_counter() - began
    return sum(len(accumulator.Tensors(tag)) for tag in accumulator.Tags()["tensors"]), seconds


def load_with_rustboard(logdir: Path, log: Path, *, checksum: bool) -> float:
    """Seconds of RustBoard's first load cycle of the logdir, as it tells them in its log."""
    options = ["--port", "0", "--reload", "once", "-vv", "--checksum" if checksum else "--no-checksum"]
    command = [tensorboard_data_server.server_binary(), "--logdir", str(logdir), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        return _first_cycle(process, log)
    finally:
        process.kill()
        process.wait()


def _first_cycle(process: subprocess.Popen, log: Path) -> float:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        found = re.search(r"Finished load cycle \(([\d.]+)(ms|s)\)", log.read_text())
        if found:
            return float(found[1]) / (1000 if found[2] == "ms" else 1)
        assert process.poll() is None, log.read_text()
        time.sleep(0.02)
    raise TimeoutError(log.read_text())
