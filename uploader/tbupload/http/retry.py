"""How long the uploader keeps trying while the server gives no good answer, and how it is told to stop."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from typing import Final

STOP_GRACE_SECONDS: Final = 25.0
"""How long an upload that the system asked to stop goes on with what was there by then: Kubernetes kills after 30 s."""

UNREACHABLE_GRACE_SECONDS: Final = 10.0
"""How long a server that does not answer is still tried after the person or the system asked us to stop."""

FIRST_RETRY_DELAY_SECONDS: Final = 0.1
RETRY_DELAY_SECONDS_MAX: Final = 5.0


class RetryPolicy:
    """Decides about repeating requests, for all threads of one upload; `give_up_seconds` may be infinite.

    `stop` asks for an orderly end: what is under way goes on, waits are cut short. `abandon` ends every wait at once.
    """

    def __init__(self, retry_timeout_seconds: float) -> None:
        self._retry_timeout_seconds = retry_timeout_seconds
        # Its lock may be taken again by the thread that holds it: a signal's handler runs in the middle of anything.
        self._changed = threading.Condition(threading.RLock())
        self._is_cancelled = False
        self._stopped_at: float | None = None
        self._stop_deadline = math.inf
        self._success_count = 0

    @property
    def is_stopping(self) -> bool:
        """Whether an end was asked for."""
        return self._is_cancelled or self._stopped_at is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for answers any more."""
        return self._is_cancelled

    @property
    def is_stop_deadline_passed(self) -> bool:
        """Whether the time that was given for an orderly end has gone by."""
        return time.monotonic() >= self._stop_deadline

    def stop(self, within_seconds: float = math.inf) -> None:
        """Asks for an orderly end, within this time at most; safe to call from a signal handler, and more than once."""
        with self._changed:
            if self._stopped_at is None:
                self._stopped_at = time.monotonic()
            self._stop_deadline = min(self._stop_deadline, time.monotonic() + within_seconds)
            self._changed.notify_all()

    def cancel(self) -> None:
        """Ends every wait at once: the upload has failed, and nobody waits for other answers."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def report_success(self) -> None:
        """The server is there: those that wait to try it again need wait no longer, unless it told them to."""
        with self._changed:
            self._success_count += 1
            self._changed.notify_all()

    def sleep(self, seconds: float) -> None:
        """Waits, unless or until an end is asked for."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_stopping, seconds)

    def wait_before_retry(
        self, attempt: int, failing_since: float, retry_after: float | None
    ) -> float | None:
        """Waits before repeating a request; the seconds it meant to wait, or None at once when it is time to give up.

        `attempt` counts from 0, `trouble_since` is on the monotonic clock, `retry_after` (seconds) is what
        the server asks for. The wait doubles with every attempt, and is drawn at random so that many clients do
        not come back together.
        """
        delay = min(RETRY_DELAY_SECONDS_MAX, FIRST_RETRY_DELAY_SECONDS * 2 ** min(attempt, 20))
        delay *= random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, hides nothing
        delay = max(delay, retry_after or 0.0)
        if time.monotonic() + delay > self._deadline(failing_since):
            return None
        with self._changed:
            self._changed.wait_for(self._wake_condition(is_told=bool(retry_after)), delay)
        return None if self._is_cancelled else delay

    def _wake_condition(self, *, is_told: bool) -> Callable[[], bool]:
        """What ends a wait: an end asked for since, and another request's answer, unless the server told us to wait."""
        was_stopping, answers = self.is_stopping, self._success_count

        def is_awake() -> bool:
            if self._is_cancelled or self.is_stopping != was_stopping:
                return True
            return not is_told and self._success_count != answers

        return is_awake

    def _deadline(self, failing_since: float) -> float:
        deadline = failing_since + self._retry_timeout_seconds
        if self._stopped_at is not None:
            away = max(failing_since, self._stopped_at) + UNREACHABLE_GRACE_SECONDS
            deadline = min(deadline, away, self._stop_deadline)
        return deadline
