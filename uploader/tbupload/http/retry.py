"""The retry policy: how long failing requests are repeated, and the delays in between."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Final

from tbupload.http.cancellation import StopToken

UNREACHABLE_GRACE_SECONDS: Final = 10.0
"""Time for which a server that does not answer is still tried after a request to stop."""

FIRST_RETRY_DELAY_SECONDS: Final = 0.1
RETRY_DELAY_SECONDS_MAX: Final = 5.0
"""Bounds of the exponential backoff, before jitter and a server's Retry-After."""

_DOUBLINGS_MAX: Final = 20


class RetryPolicy:
    """Decides whether and when to repeat requests, for all threads of one upload.

    Args:
        retry_timeout_seconds: Time of failure after which to give up; may be infinite.
        stop_token: Cuts delays short, and bounds the time of failure; by default a new one.
        refused_timeout_seconds: In place of the first one for a server that refuses connections,
            and has never answered: it does not run, or the address is wrong.
    """

    def __init__(
        self,
        retry_timeout_seconds: float,
        stop_token: StopToken | None = None,
        *,
        refused_timeout_seconds: float = math.inf,
    ) -> None:
        self.stop_token = StopToken() if stop_token is None else stop_token
        self._retry_timeout_seconds = retry_timeout_seconds
        self._refused_timeout_seconds = min(retry_timeout_seconds, refused_timeout_seconds)
        self._success_count = 0

    def report_success(self) -> None:
        """Wake threads waiting to retry: the server answers again.

        Requests that were sent a Retry-After continue to wait.
        """
        with self.stop_token.changed:
            self._success_count += 1
            self.stop_token.changed.notify_all()

    def wait_before_retry(
        self,
        attempt: int,
        failing_since: float,
        retry_after: float | None,
        *,
        is_refused: bool = False,
    ) -> float | None:
        """Wait before repeating a request.

        The delay doubles with each attempt. Jitter keeps many clients from coming back at the same
        moment; so they wait for a Retry-After, which is the same for all, up to twice as long.

        Args:
            attempt: The number of earlier retries.
            failing_since: Time of the first failure, on the monotonic clock in seconds.
            retry_after: The server's Retry-After in seconds (RFC 9110, section 10.2.3): a minimum.
            is_refused: The server refuses connections, and has never answered.

        Returns:
            The delay in seconds, also if it was cut short; None, at once or when cancelled, if the
            request is not to be repeated.
        """
        delay = min(
            RETRY_DELAY_SECONDS_MAX, FIRST_RETRY_DELAY_SECONDS * 2 ** min(attempt, _DOUBLINGS_MAX)
        )
        delay *= random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, hides nothing
        delay = max(delay, (retry_after or 0.0) * random.uniform(1.0, 2.0))  # noqa: S311  # as above
        # Before the wait: a delay that would end after the deadline is a wait for nothing.
        if time.monotonic() + delay > self._deadline(failing_since, is_refused=is_refused):
            return None

        token = self.stop_token
        with token.changed:
            token.changed.wait_for(self._wake_condition(has_minimum=bool(retry_after)), delay)
        return None if token.is_cancelled else delay

    def _wake_condition(self, *, has_minimum: bool) -> Callable[[], bool]:
        """Return what ends a delay: a new request to stop or, without a minimum, a success."""
        token = self.stop_token
        was_stopping, success_count = token.is_stopping, self._success_count

        def is_awake() -> bool:
            if token.is_cancelled or token.is_stopping != was_stopping:
                return True
            return not has_minimum and self._success_count != success_count

        return is_awake

    def _deadline(self, failing_since: float, *, is_refused: bool) -> float:
        """Return the time after which no retry is begun."""
        deadline = failing_since + (
            self._refused_timeout_seconds if is_refused else self._retry_timeout_seconds
        )
        stopped_at = self.stop_token.stopped_at
        if stopped_at is not None:
            unreachable = max(failing_since, stopped_at) + UNREACHABLE_GRACE_SECONDS
            deadline = min(deadline, unreachable, self.stop_token.deadline)
        return deadline
