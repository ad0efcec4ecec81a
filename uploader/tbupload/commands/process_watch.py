"""Wait for the end of another process, such as the training that writes the files."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import Final

POLL_SECONDS: Final = 2.0
"""Interval of checks where the system cannot say at once that a process has ended."""


class WatchedProcess:
    """A process of this machine, by its ID.

    On Linux it is watched through a file descriptor, so that a process that is stopped counts as
    running, and a new one with the same ID does not. On Windows its end is never noticed.

    Args:
        process_id: Its ID.
        is_parent: Whether it is the one that started this process.
    """

    def __init__(self, process_id: int, *, is_parent: bool) -> None:
        self._id = process_id
        self._is_parent = is_parent
        self._descriptor: int | None = None
        self._has_ended = False
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
