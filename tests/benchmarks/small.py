"""A small host: `tbservice up` with its servers on one core. Memory when idle, beside a live job,
and with an open page; seconds until it is ready, and until the first curve of `tbupload`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import urllib3
from bench import Bench, say
from local_tensorboard import Site
from logdirs import Size, write_scalars
from machine import report
from page import paint
from playwright.sync_api import sync_playwright

from support.browser_pages import launch

CURVES = Size(1, 5, 100)
LIVE_SECONDS, LIVE_STEPS = 20, 2_000
IDLE_SECONDS = 15
"""After which the service has started the program that handlers are forked from."""

LOOK_SECONDS, CURVE_LOOK_SECONDS = 0.2, 0.02
MEMORY_MAX = "at most 1,024"
_POOL = urllib3.PoolManager(retries=False)


@dataclass(frozen=True)
class Up:
    """A `tbservice up` that is ready, on the first core that this process may use."""

    home: Path
    process: subprocess.Popen[str]
    url: str
    seconds: float

    @property
    def token(self) -> str:
        config = (self.home / ".config/tbhub/config.toml").read_text()
        return str(tomllib.loads(config)["token"])

    @property
    def memory(self) -> float:
        """MiB of the process and of all that it started, which share some (PSS)."""
        process = psutil.Process(self.process.pid)
        total = 0
        for each in [process, *process.children(recursive=True)]:
            try:
                total += each.memory_full_info().pss
            except psutil.NoSuchProcess:
                continue
        return total / 2**20


def measure(bench: Bench) -> None:
    """Measure all of it on a new data directory; another core is for the clients, if there is one."""
    with _up(bench.directory / "home") as up:
        report("`tbservice up` on a new directory: ready after", f"{up.seconds:.1f} s")
        time.sleep(IDLE_SECONDS)
        report("memory when idle, PostgreSQL and SeaweedFS too", f"{up.memory:.0f} MiB", MEMORY_MAX)
        logdir = bench.directory / "curves"
        write_scalars(logdir, CURVES)
        seconds = [_await_curve(up, logdir, number) for number in range(max(3, bench.rounds))]
        report(
            "from the start of `tbupload` to its first curve, first / median",
            f"{seconds[0]:.2f} / {statistics.median(seconds):.2f} s",
            "at most 1 s",
        )
        live = bench.directory / "live"
        write_scalars(live, Size(1, 50, LIVE_STEPS))
        with _watched(up, "beside a live job of 50 tags"):
            process = _follow(up, live, "live")
            time.sleep(LIVE_SECONDS)
            process.terminate()
            process.wait()
        with _watched(up, "while Chromium opens TensorBoard's page"), sync_playwright() as browsers:
            browser = launch(browsers)
            cold, warm = paint(browser, _site(up, "live"))
            browser.close()
        report("first card with its points, cold / warm", f"{cold[1]} / {warm[1]} ms")
        report("memory afterwards", f"{up.memory:.0f} MiB", MEMORY_MAX)


@contextmanager
def _up(home: Path) -> Iterator[Up]:
    home.mkdir()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # which it inherits
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tbservice", "up", "--port", "0"],
        env={**_environment(home), "PYTHONUNBUFFERED": "1"},
        cwd=home,
        stdout=subprocess.PIPE,
        text=True,
    )
    os.sched_setaffinity(0, cores)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        assert ready, "tbservice up did not start"
        yield Up(home, process, ready[-1], time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TBHUB_")}
    return {**kept, "HOME": str(home)}


def _follow(up: Up, logdir: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tbupload", "--logdir", str(logdir), "--name", name, "--quiet"]
    return subprocess.Popen(command, env=_environment(up.home), stdout=subprocess.DEVNULL)


def _await_curve(up: Up, logdir: Path, number: int) -> float:
    """Return the seconds from the start of an uploader until a curve is readable."""
    began = time.perf_counter()
    process = _follow(up, logdir, f"curves {number}")
    experiment_id = None
    try:
        while True:
            experiment_id = experiment_id or _find(up, f"curves {number}")
            if experiment_id and _get(up, f"/experiments/{experiment_id}/scalars"):
                return time.perf_counter() - began
            time.sleep(CURVE_LOOK_SECONDS)
    finally:
        process.terminate()
        process.wait()


def _find(up: Up, name: str) -> str | None:
    listed = _get(up, "/experiments")["experiments"]
    return next((each["experiment_id"] for each in listed if each["name"] == name), None)


def _get(up: Up, path: str) -> dict:
    headers = {"Authorization": f"Bearer {up.token}"}
    return _POOL.request("GET", f"{up.url}/api/v1{path}", headers=headers).json()


def _site(up: Up, name: str) -> Site:
    headers = {"Authorization": f"Bearer {up.token}"}
    url = f"{up.url}/experiment/{_find(up, name)}/"
    return Site(url, (up.process.pid,), headers, _POOL)


@contextmanager
def _watched(up: Up, what: str) -> Iterator[None]:
    """Report the most memory that the service has in use during the block."""
    end, seen = threading.Event(), [up.memory]

    def look() -> None:
        while not end.wait(LOOK_SECONDS):
            seen.append(up.memory)

    say(what)
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
    report(f"most memory {what}", f"{max(seen):.0f} MiB", MEMORY_MAX)
