"""Many who look at one live experiment: 500 that ask for curves again and again, 500 that follow its
new points, and 1,000 that follow while nothing happens.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import numpy as np
from bench import Bench, say
from machine import report
from service import Service

from support.batches import scalars, segment, stream

VIEWERS, FOLLOWERS = 500, 1_000
TAGS, SHOWN = 50, 12
STEPS = 5_000
SECONDS = 30
REFRESH_SECONDS = 5
"""How often a viewer asks: six times as often as TensorBoard's page."""

CONNECTIONS_A_SECOND = 100


def measure(bench: Bench) -> None:
    """Measure both in one service with two workers."""
    with bench.new_service("viewers", TBHUB_WORKERS="2") as service:
        experiment = service.api.new_experiment(name="live")
        tags = [f"metrics/tag_{number:02d}" for number in range(TAGS)]
        _write(service, experiment, tags, 0, STEPS)
        shown = "&".join(f"tag={tag}" for tag in tags[:SHOWN])
        path = f"/api/v1/experiments/{experiment}/scalars/data?downsample=1000&{shown}"
        if bench.is_chosen("viewers"):
            with _written(service, experiment, tags):
                alone, _, _ = asyncio.run(_view(service, path, 1))
                count = max(2, round(VIEWERS * bench.scale))
                many, answers, cores = asyncio.run(_view(service, path, count))
            # The median: of six requests, the first to each worker are the 95th percentile.
            ratio = np.quantile(many, 0.95) / np.median(alone)
            report("one viewer, median", f"{np.median(alone) * 1000:.1f} ms")
            report(
                f"{count} viewers, p95",
                f"{np.quantile(many, 0.95) * 1000:.1f} ms",
                f"{ratio:.1f} x of one viewer; at most 3 x",
            )
            report("answers", f"{answers / SECONDS:.0f}/s", f"{len(many)} requests")
            report("processor of the service", f"{cores:.2f} cores", "at most 2")
        if bench.is_chosen("stream"):
            count = max(2, round(VIEWERS * bench.scale))
            with _written(service, experiment, tags):
                alone, _ = asyncio.run(_follow(service, experiment, 1))
                many, _ = asyncio.run(_follow(service, experiment, count))
            for group in many:
                figures = f"{alone[group]:.1%} / {many[group]:.1%} of a core"
                report(f"one / {count} that follow new points: {group}", figures)
        if bench.is_chosen("followers"):
            count = max(2, round(FOLLOWERS * bench.scale))
            idle, without = asyncio.run(_follow(service, experiment, 0))
            cores, memory = asyncio.run(_follow(service, experiment, count))
            used = sum(cores.values()) - sum(idle.values())
            report(f"{count} idle followers", f"{used:.1%} of a core", "at most 5 %")
            report("memory of each", f"{(memory - without) / count / 1024:.0f} KiB")


def _write(service: Service, experiment: str, tags: list[str], first: int, end: int) -> None:
    steps = np.arange(first, end)
    values = np.random.default_rng(first).normal(size=(len(tags), end - first))
    series = [scalars(tag, steps, values[n]) for n, tag in enumerate(tags)]
    service.api.write(experiment, segment(stream(), first, end, *series))


@contextmanager
def _written(service: Service, experiment: str, tags: list[str]) -> Iterator[None]:
    """Write a step of all tags each second meanwhile."""
    end = threading.Event()

    def write() -> None:
        step = STEPS
        while not end.wait(1):
            _write(service, experiment, tags, step, step + 1)
            step += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


async def _view(service: Service, path: str, count: int) -> tuple[list[float], int, float]:
    """Let viewers ask until the time is over.

    Return the latency of each request in seconds, how many had data, and the cores in use.
    """
    say(f"{count} viewers for {SECONDS} s")
    latencies: list[float] = []
    changed = 0

    async def view(number: int) -> None:
        nonlocal changed
        tag = ""
        await asyncio.sleep(REFRESH_SECONDS * number / count)
        while time.monotonic() < ends:
            reader, writer = await _connect(service)
            began = time.monotonic()
            status, head = await _ask(service, reader, writer, path, f"If-None-Match: {tag}\r\n")
            latencies.append(time.monotonic() - began)
            assert status in {200, 304}, head
            changed += status == 200
            tag = re.search(r"(?im)^etag: (.*)$", head)[1].strip()
            writer.close()
            await asyncio.sleep(REFRESH_SECONDS)

    ends = time.monotonic() + SECONDS
    used = sum(service.cpu_seconds().values())
    await asyncio.gather(*(view(number) for number in range(count)))
    return latencies, changed, (sum(service.cpu_seconds().values()) - used) / SECONDS


async def _follow(service: Service, experiment: str, count: int) -> tuple[dict[str, float], int]:
    """Let followers wait for what is new; return the cores in use and the bytes of memory."""
    say(f"{count} followers for {SECONDS} s")
    path = f"/api/v1/experiments/{experiment}/scalars/tail?start=now"
    opened: list[asyncio.StreamWriter] = []
    reads: list[asyncio.Task[bytes]] = []
    while len(opened) < count:
        reader, writer = await _connect(service)
        _send(service, writer, path)
        status = int((await reader.readline()).split()[1])
        if status == 200:
            opened.append(writer)
            reads.append(asyncio.create_task(reader.read()))
        else:  # this worker has its half already
            assert status == 429, status
            writer.close()
        await asyncio.sleep(1 / CONNECTIONS_A_SECOND)
    before, memory = service.cpu_seconds(), service.memory()
    await asyncio.sleep(SECONDS)
    after = service.cpu_seconds()
    cores = {group: (after[group] - before[group]) / SECONDS for group in after}
    for writer in opened:
        writer.close()
    await asyncio.gather(*reads, return_exceptions=True)
    return cores, memory


async def _connect(service: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = urlsplit(service.live.url)
    return await asyncio.open_connection(address.hostname, address.port)


def _send(service: Service, writer: asyncio.StreamWriter, path: str, more: str = "") -> None:
    head = f"GET {path} HTTP/1.1\r\nHost: {urlsplit(service.live.url).netloc}\r\n"
    writer.write(f"{head}Authorization: Bearer {service.token}\r\n{more}\r\n".encode())


async def _ask(
    service: Service,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str,
    more: str,
) -> tuple[int, str]:
    """Return the status and the head of an answer, when all of it is there."""
    _send(service, writer, path, f"Connection: close\r\n{more}")
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    with suppress(ConnectionResetError):
        await reader.read()
    return int(head.split()[1]), head
