"""An advisory lock between processes on a file; the system releases it when a process dies."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK_POLL_SECONDS: Final = 0.02

LOCKS_UNSUPPORTED_ERRNOS: Final = frozenset(
    {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}
)
"""Errors of a file system without locks, for example some network file systems of clusters."""

if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _try_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(path: Path, seconds_max: float) -> Iterator[None]:
    """Hold the lock on `path` during the block; create the file if necessary, and do not delete it.

    Where the file system does not support locks, the block runs without one.

    Raises:
        TimeoutError: another process held the lock for longer than `seconds_max`.
        OSError: the file cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _acquire(descriptor, path, seconds_max)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while True:
        try:
            return _try_lock(descriptor)
        except OSError as error:
            if error.errno in LOCKS_UNSUPPORTED_ERRNOS:
                return None
            if error.errno not in {errno.EAGAIN, errno.EACCES, errno.EDEADLK}:
                raise
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, f"locked by another process for {seconds_max:g} s", path
                ) from error
        time.sleep(LOCK_POLL_SECONDS)
