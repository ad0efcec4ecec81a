"""TensorBoard as people run it on their own machine: its page over the same logdir, RustBoard
reading the files.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import urllib3
from machine import cpu_seconds, report

from tbservice.local.embedded.ports import choose_ports

_DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": lambda packed: zlib.decompress(packed, wbits=31),
    "zstd": lambda packed: pa.input_stream(pa.py_buffer(packed), compression="zstd").read(),
}
LOAD_SECONDS_MAX = 1_800
TIME_SERIES = "data/plugin/timeseries/timeSeries"


@dataclass(frozen=True)
class Site:
    """A TensorBoard page at `url`, which ends in a slash; `process_ids` are those that answer for
    it.
    """

    url: str
    process_ids: tuple[int, ...]
    headers: dict[str, str]
    pool: urllib3.PoolManager

    def get(self, path: str) -> bytes:
        """The body of an answer, which is compressed on its way as a browser has it."""
        return self._ask("GET", path)

    def card(self, tag: str) -> bytes:
        """Send what the page asks for to draw one scalar card: a tag of all runs."""
        form = {"requests": json.dumps([{"plugin": "scalars", "tag": tag}])}
        return self._ask("POST", TIME_SERIES, fields=form)

    def post(self, path: str, body: dict[str, object]) -> bytes:
        """The answer to a JSON body."""
        return self._ask("POST", path, body=json.dumps(body).encode())

    def cpu_seconds(self) -> float:
        """CPU seconds of its processes until now."""
        return cpu_seconds(*self.process_ids)

    def _ask(self, method: str, path: str, **content: Any) -> bytes:
        headers = {**self.headers, "Accept-Encoding": "gzip, deflate, br, zstd"}  # as Chromium's
        answer = self.pool.request(
            method, self.url + path, headers=headers, decode_content=False, **content
        )
        assert answer.status == 200, (answer.status, answer.data[:500])
        return _DECODERS[answer.headers.get("Content-Encoding", "identity")](answer.data)


@contextmanager
def local_tensorboard(logdir: Path, log: Path) -> Iterator[Site]:
    """TensorBoard with its data server over the logdir, while the block lasts; it begins to load at
    once.
    """
    port = choose_ports(["tensorboard"], {})["tensorboard"]
    options = [
        "--logdir",
        str(logdir),
        "--load_fast=true",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        site = Site(
            f"http://127.0.0.1:{port}/", (process.pid,), {}, urllib3.PoolManager(retries=False)
        )
        _wait(lambda: _is_up(site), process, log)
        yield site
    finally:
        process.terminate()  # it ends its data server, too
        process.wait()


def wait_until_loaded(site: Site, tag: str, runs: int, last_step: int) -> float:
    """Return the seconds until all runs show the last step of the tag, the last in every file."""
    began = time.monotonic()
    while True:
        series = json.loads(site.card(tag))[0]["runToSeries"]
        if len(series) == runs and all(
            points[-1]["step"] == last_step for points in series.values()
        ):
            return time.monotonic() - began
        assert time.monotonic() < began + LOAD_SECONDS_MAX, "TensorBoard has not loaded the logdir"
        time.sleep(2)


def ask_in_turns(
    rounds: int, asked: dict[str, tuple[Site, Callable[[Site], object]]]
) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds and CPU seconds of each, asked one after the other in every round, the first of which
    does not count.
    """
    spent: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in asked}
    for number in range(rounds + 1):
        for name, (site, ask) in asked.items():
            cpu, began = site.cpu_seconds(), time.perf_counter()
            ask(site)
            seconds = time.perf_counter() - began
            if number:
                spent[name][0].append(seconds)
                spent[name][1].append(site.cpu_seconds() - cpu)
    return spent


def tell_median(spent: tuple[list[float], list[float]]) -> str:
    """Return the median of the seconds, in milliseconds."""
    return f"{statistics.median(spent[0]) * 1000:.0f} ms"


def report_ratio(
    name: str,
    ours: tuple[list[float], list[float]],
    other: tuple[list[float], list[float]],
    target: str = "",
) -> None:
    """Report ratios of the median times and of all CPU time, which says more when others load the
    machine.
    """
    cpu = sum(ours[1]) / max(sum(other[1]), 1e-9)
    report(
        name,
        f"{statistics.median(ours[0]) / statistics.median(other[0]):.2f} x",
        f"{target} (CPU: {cpu:.2f} x)".strip(),
    )


def _is_up(site: Site) -> bool:
    try:
        site.get("data/environment")
    except urllib3.exceptions.HTTPError:
        return False
    return True


def _wait(condition, process: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
