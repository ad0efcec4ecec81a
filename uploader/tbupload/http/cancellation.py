"""The stop token: how an upload and its requests are asked to end, from any thread."""

from __future__ import annotations

import math
import threading
import time
from typing import Final

STOP_GRACE_SECONDS: Final = 25.0
"""Time to finish after a SIGTERM: Kubernetes sends SIGKILL 30 s after it by default."""


class StopToken:
    """A request to stop, shared by the threads of one upload.

    `stop` asks for an orderly end: what is in flight is finished, and waits are cut short. `cancel`
    ends every wait at once: the upload has failed, or nobody waits for its answers any more.

    `changed` is notified of both, and of anything else that a waiting thread has to check.

    `stopped_at` is when `stop` was called first, and `deadline` the time by which to end, both on
    the monotonic clock in seconds: None and infinity without one.
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler calls `stop` in a thread that may have the lock already.
        self.changed = threading.Condition(threading.RLock())
        self.is_cancelled = False
        self.stopped_at: float | None = None
        self.deadline = math.inf
        self._wake_count = 0

    @property
    def is_stopping(self) -> bool:
        """Return whether `stop` or `cancel` was called."""
        return self.is_cancelled or self.stopped_at is not None

    @property
    def is_deadline_passed(self) -> bool:
        """Return whether the time for an orderly end is over."""
        return time.monotonic() >= self.deadline

    def stop(self, within_seconds: float = math.inf) -> None:
        """Ask for an orderly end within this time.

        May be called from a signal handler, and more than once: the earliest deadline counts.
        """
        with self.changed:
            if self.stopped_at is None:
                self.stopped_at = time.monotonic()
            self.deadline = min(self.deadline, time.monotonic() + within_seconds)
            self.changed.notify_all()

    def cancel(self) -> None:
        """End every wait at once."""
        with self.changed:
            self.is_cancelled = True
            self.changed.notify_all()

    def wake(self) -> None:
        """End the `sleep` of every thread, and nothing else."""
        with self.changed:
            self._wake_count += 1
            self.changed.notify_all()

    def sleep(self, seconds: float) -> None:
        """Wait for this time, or until `stop`, `cancel` or `wake` is called."""
        with self.changed:
            count = self._wake_count
            self.changed.wait_for(lambda: self.is_stopping or self._wake_count != count, seconds)
