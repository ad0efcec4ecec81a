"""How long the uploader keeps trying while the server gives no good answer, and how it is told to stop."""

from __future__ import annotations

import random
import threading
import time
from typing import Final

STOP_GRACE_SECONDS: Final = 10.0
"""How long a server that does not answer is still tried after the person or the system asked us to stop."""

FIRST_DELAY_SECONDS: Final = 0.1
DELAY_SECONDS_MAX: Final = 5.0


class Patience:
    """Decides about repeating requests, for all threads of one upload; `give_up_seconds` may be infinite.

    `stop` asks for an orderly end: what is under way goes on, waits are cut short. `abandon` ends every wait at once.
    """

    def __init__(self, give_up_seconds: float) -> None:
        self._give_up_seconds = give_up_seconds
        self._stopping = threading.Event()
        self._abandoned = threading.Event()
        self._stopped_at = 0.0

    @property
    def is_stopping(self) -> bool:
        """Whether an end was asked for."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Asks for an orderly end; safe to call from a signal handler, and more than once."""
        if not self._stopping.is_set():
            self._stopped_at = time.monotonic()
            self._stopping.set()

    def abandon(self) -> None:
        """Ends every wait at once: the upload has failed, and nobody waits for other answers."""
        self._abandoned.set()
        self._stopping.set()

    def sleep(self, seconds: float) -> None:
        """Waits, unless or until an end is asked for."""
        self._stopping.wait(seconds)

    def wait_to_repeat(self, attempt: int, trouble_since: float, retry_after: float | None) -> float | None:
        """Waits before repeating a request; the seconds waited, or None at once when it is time to give up.

        `attempt` counts from 0, `trouble_since` is on the monotonic clock, `retry_after` (seconds) is what
        the server asks for. The wait doubles with every attempt, and is drawn at random so that many clients do
        not come back together.
        """
        delay = min(DELAY_SECONDS_MAX, FIRST_DELAY_SECONDS * 2 ** min(attempt, 20))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, hides nothing
        delay = max(delay, retry_after or 0.0)
        if time.monotonic() + delay > self._deadline(trouble_since):
            return None
        if self.is_stopping:
            self._abandoned.wait(delay)
        else:
            self._stopping.wait(delay)
        return None if self._abandoned.is_set() else delay

    def _deadline(self, trouble_since: float) -> float:
        deadline = trouble_since + self._give_up_seconds
        if self.is_stopping:
            deadline = min(deadline, max(trouble_since, self._stopped_at) + STOP_GRACE_SECONDS)
        return deadline
