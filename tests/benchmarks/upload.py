"""How fast a million scalars go from event files into the database, and how much memory that takes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from logdirs import MILLION, write_scalars
from machine import peak_memory, report
from rivals import load_with_python, load_with_rustboard
from service import Service

ROUNDS = 3


def measure(service: Service) -> None:
    """Uploads the same files a few times, each to a new experiment, and lets TensorBoard's readers load them."""
    logdir = service.directory / "logdir"
    size = write_scalars(logdir)
    print(f"upload: {MILLION.points:,} scalars in {MILLION.runs} runs of {MILLION.tags} tags, {size / 2**20:.1f} MiB")
    rounds = [upload(service, logdir) for _ in range(ROUNDS)]
    seconds = min(seconds for seconds, _ in rounds)
    rate = MILLION.points / seconds
    told = ", ".join(f"{seconds:.2f} s" for seconds, _ in rounds)
    report("upload, the whole `tbupload --one-shot`, best round", f"{rate:,.0f}/s", told)
    _compare_with_python(logdir, rate)
    _compare_with_rustboard(logdir, service.directory / "rustboard.log", rate)
    report("most memory of the uploader", f"{max(peak for _, peak in rounds) / 2**20:.0f} MiB", "at most 150")
    report(
        "most memory of the server's worker", f"{peak_memory(service.live.process.pid) / 2**20:.0f} MiB", "at most 300"
    )


def upload(service: Service, logdir: Path) -> tuple[float, int]:
    """Seconds from the start of the process to its end, when everything is committed; and its peak memory in bytes."""
    environment = os.environ | {
        "TBHUB_SERVER": service.live.url,
        "TBHUB_TOKEN": service.token,
        "TBHUB_CONFIG": str(service.directory / "config.toml"),
    }
    command = [sys.executable, "-m", "tbupload", "--logdir", str(logdir), "--one-shot", "--quiet"]
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, peak_memory(process.pid))
        time.sleep(0.01)
    assert process.returncode == 0
    return time.perf_counter() - began, peak


def _compare_with_python(logdir: Path, rate: float) -> None:
    points, seconds = load_with_python(logdir / "run_00")
    assert points == MILLION.points // MILLION.runs
    python_rate = points / seconds
    report("TensorBoard's Python reader, one run of the ten", f"{python_rate:,.0f}/s")
    report("upload : TensorBoard's Python reader", f"{rate / python_rate:.1f} x", "at least 20")


def _compare_with_rustboard(logdir: Path, log: Path, rate: float) -> None:
    for checksum in (False, True):
        seconds = min(load_with_rustboard(logdir, log, checksum=checksum) for _ in range(ROUNDS))
        name = "RustBoard's load cycle, checksums " + ("verified" if checksum else "ignored")
        report(name, f"{MILLION.points / seconds:,.0f}/s", f"upload : this is {rate * seconds / MILLION.points:.2f} x")
