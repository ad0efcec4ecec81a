"""Machine that figures were measured on, what processes used, and how figures are printed."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

FIGURES: list[tuple[str, str]] = []
"""Names and values that `report` has printed, in order."""


def describe() -> str:
    """One line: processor, cores this process may use, memory, Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {cores()} cores, {memory:.0f} GiB, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


def peak_memory(process_id: int) -> int:
    """The most memory a running process has had resident since it began, in bytes (VmHWM); 0 once
    it has ended.
    """
    return _memory(process_id, "VmHWM:")


def resident_memory(process_id: int) -> int:
    """The memory a running process has resident, in bytes (VmRSS); 0 once it has ended."""
    return _memory(process_id, "VmRSS:")


def _memory(process_id: int, name: str) -> int:
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith(name)]
    return (
        int(lines[0][1]) * 1024 if lines else 0
    )  # a process that has ended and was not waited for has no such line


def cpu_seconds(*process_ids: int) -> float:
    """CPU time of these processes and all below them, in user and system mode; of those that have
    ended, too.
    """
    total = 0.0
    for process_id in process_ids:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(process_id)
            for process in [root, *root.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    total += times.user + times.system + times.children_user + times.children_system
    return total


def own_cpu_seconds(process_id: int) -> float:
    """CPU time of one running process, without those below it; 0 once it has ended."""
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(process_id).cpu_times()
        return times.user + times.system
    return 0.0


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def told(seconds: dict[str, float]) -> str:
    """CPU seconds by group, on one line."""
    return ", ".join(f"{name} {used:.2f} s" for name, used in seconds.items())


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """CPU seconds used between two looks at `cpu_seconds`."""
    return {name: after[name] - before[name] for name in before}


def report(name: str, value: str, target: str = "") -> None:
    """Prints one figure, and what it should be; keeps it in FIGURES."""
    FIGURES.append((name.strip(), value))
    print(f"  {name:<66} {value:>16}   {target}".rstrip(), flush=True)


def time_each(ask: Callable[[], object], rounds: int) -> list[float]:
    """Call a function several times; return the seconds of each call."""
    spent = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        spent.append(time.perf_counter() - began)
    return spent


def time_once(ask: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    return time_each(ask, 1)[0]


def median_of(ask: Callable[[], object], rounds: int) -> float:
    """Return the median of the seconds of several calls, after one that does not count."""
    return statistics.median(time_each(ask, rounds + 1)[1:])


def report_memory(process_id: int, when: str, target: str = "") -> None:
    """Print what a worker has resident, and the most it had."""
    now, most = resident_memory(process_id) / 2**20, peak_memory(process_id) / 2**20
    name = f"memory of the worker {when}: now, and at most"
    report(name, f"{now:.0f}, {most:.0f} MiB", target)
