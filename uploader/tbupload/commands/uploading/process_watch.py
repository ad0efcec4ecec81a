"""Wait for the end of another process, such as the training that writes the files."""

from __future__ import annotations

import contextlib
import os
import select
import struct
import sys
import time
from pathlib import Path
from typing import Final

from tbupload.recording.exit_status import Ending, ending_of_wait_status

POLL_SECONDS: Final = 2.0
"""Interval of checks where the system cannot say at once that a process has ended."""


EXIT_SECONDS_MAX: Final = 2.0
"""How long its exit code is waited for: the kernel tells it when its parent has asked for it."""

PIDFD_GET_INFO: Final = 0xC040FF0B
PIDFD_INFO_EXIT: Final = 1 << 3
PIDFD_INFO: Final = struct.Struct("=Q52xi")
"""The request, its flag, and the fields `mask` and `exit_code` of `struct pidfd_info`.

Source: Linux, `include/uapi/linux/pidfd.h`, as of version 6.15. Earlier ones refuse the request.
"""


class WatchedProcess:
    """A process of this machine, by its ID.

    On Linux it is watched through a file descriptor, so that a process that is stopped counts as
    running, and a new one with the same ID does not. On Windows its end is never noticed.

    Args:
        process_id: Its ID.
        is_parent: Whether it is the one that started this process.
        descriptor: A descriptor of it (pidfd) that it has passed on: so its exit code is known also
            if it ended before this process could look. None without one.
    """

    def __init__(self, process_id: int, *, is_parent: bool, descriptor: int | None = None) -> None:
        self._id = process_id
        self._is_parent = is_parent
        self._descriptor: int | None = None
        self._has_ended = False
        if descriptor is not None:
            self._descriptor = descriptor
            return
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(process_id)
            except ProcessLookupError:
                self._has_ended = True
            except OSError:  # an older kernel, or a sandbox
                self._descriptor = None
        # It may have ended before, and its ID may belong to another process by now.
        if is_parent and sys.platform != "win32" and os.getppid() != process_id:
            self._has_ended = True

    def has_ended_within(self, seconds: float) -> bool:
        """Wait for its end at most for this time; return whether it has ended."""
        if self._has_ended or self._descriptor is None:
            if not self._has_ended:
                time.sleep(min(seconds, POLL_SECONDS))
            self._has_ended = self._has_ended or not self._exists()
        else:
            poll = select.poll()  # unlike select, for descriptors of any number
            poll.register(self._descriptor, select.POLLIN)
            self._has_ended = bool(poll.poll(seconds * 1000))
        return self._has_ended

    def find_ending(self) -> Ending | None:
        """Return how the process ended, by its exit code; None where the system does not tell."""
        if self._descriptor is None or sys.platform != "linux":
            return None
        import fcntl  # noqa: PLC0415 - not on Windows

        until = time.monotonic() + EXIT_SECONDS_MAX
        while time.monotonic() < until:
            answer = bytearray(PIDFD_INFO.pack(PIDFD_INFO_EXIT, 0))
            try:
                fcntl.ioctl(self._descriptor, PIDFD_GET_INFO, answer)
            except OSError:
                return None
            mask, status = PIDFD_INFO.unpack(answer)
            if mask & PIDFD_INFO_EXIT:
                return ending_of_wait_status(status)
            time.sleep(0.02)
        return None

    def _exists(self) -> bool:
        if sys.platform == "win32":
            return True
        if self._is_parent:
            return os.getppid() == self._id
        with contextlib.suppress(PermissionError):
            try:
                os.kill(self._id, 0)
            except ProcessLookupError:
                return False
        return True


def process_started_at(process_id: int) -> float | None:
    """Return when a process started, in seconds since the epoch; None where that is not known.

    Source: `proc_pid_stat(5)`, field 22, in clock ticks since the start of the system.
    """
    try:
        fields = Path("/proc", str(process_id), "stat").read_text("ascii", "replace")
        ticks = int(fields.rpartition(")")[2].split()[19])
        since_boot = float(Path("/proc/uptime").read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return time.time() - since_boot + ticks / os.sysconf("SC_CLK_TCK")
