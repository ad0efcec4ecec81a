"""What the figures were measured on, and how they are printed."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> str:
    """One line: processor, cores this process may use, memory, Python."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{model}, {cores} cores, {memory:.0f} GiB, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


def peak_memory(process_id: int) -> int:
    """The most memory a running process has had resident since it began, in bytes (VmHWM); 0 once it has ended."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except FileNotFoundError:
        return 0
    lines = [line.split() for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else 0  # a process that has ended and was not waited for has no such line


def report(name: str, value: str, target: str = "") -> None:
    """Prints one figure, and what it should be."""
    print(f"  {name:<58} {value:>16}   {target}".rstrip(), flush=True)
