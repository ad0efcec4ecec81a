"""How many readers an upload has, unless it was told."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

READERS_MAX: Final = 64
"""Readers of one upload, at most."""

CHOSEN_PROCESSES_MAX: Final = 7
"""Reader processes that are chosen, at most: more read faster than the upload can send."""

THREADS: Final = 16
"""Readers of a remote log directory: threads, which wait for its answers most of the time."""

IDLE_CORES_MIN: Final = 3
"""Idle cores from which reader processes are chosen: beside the service, two gain nothing."""

BACKLOG_BYTES_MIN: Final = 64 << 20
"""Unread bytes from which reader processes are started: less is read sooner than they are ready."""

LIVE_SECONDS: Final = 60.0
"""Age of the last change of a file below which a job is taken to be writing it."""


def idle_cores() -> int:
    """Return how many usable cores were idle in the last minute; 1 where the system does not tell.

    Less than 1 on a machine with more work than cores.
    """
    try:
        load, _, _ = os.getloadavg()
    except (AttributeError, OSError):  # Windows has none
        return 1
    return usable_cores() - round(load)


def choose_processes(unread_bytes: int, cores: int, *, is_live: bool) -> int:
    """Return how many reader processes an upload has; 0 to read in its own process.

    One idle core is for the upload itself, which sends what the readers have read.

    Args:
        unread_bytes: Size of the backlog.
        cores: Idle ones.
        is_live: Whether a job is writing to the log directory: the idle cores are left to it.
    """
    if is_live or unread_bytes < BACKLOG_BYTES_MIN or cores < IDLE_CORES_MIN:
        return 0
    return min(cores - 1, CHOSEN_PROCESSES_MAX)


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    if not hasattr(os, "sched_getaffinity"):  # only Linux has it
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    # A container's share: https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    with contextlib.suppress(OSError, ValueError):  # "max", or another version
        quota, period = map(int, Path("/sys/fs/cgroup/cpu.max").read_text().split())
        cores = min(cores, max(1, quota // period))
    return cores
