"""Control of an upload that follows its files: asks for a look at them now, and for its end."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from tbupload.http.cancellation import STOP_GRACE_SECONDS, StopToken
from tbupload.upload.summary import Summary

SENDING_SECONDS_MIN: Final = 10.0
"""Minimum time that remains after a SIGTERM to send the rest of the data."""

HURRIED_QUIET_SECONDS: Final = 1.0
"""After a SIGTERM: for how long files must be unchanged once the process that writes has ended."""

RETRY_SECONDS_MAX: Final = 86_400.0
"""How long a server is tried after the process that writes has ended: a day."""


class FollowControl:
    """Requests to an upload; its methods may be called from any thread.

    Without a request, the upload follows its files until the stop token stops.

    Args:
        stop_token: The one of the upload.
        report_look: Called by the upload with the name of a look, and what it found.
    """

    def __init__(self, stop_token: StopToken, report_look: Callable[[str, Summary], None]) -> None:
        self._report_look = report_look
        self._stop_token = stop_token
        self._looks: deque[str] = deque()
        self._quiet_seconds = math.inf
        self._quiet_since = -math.inf
        self._follow_until = math.inf
        self._retry_until = math.inf

    def request_look(self, name: str) -> None:
        """Ask to commit what is in the files now, and to report that as `name`."""
        self._looks.append(name)
        self._stop_token.wake()

    @property
    def next_look(self) -> str | None:
        """Return the name of the next look; None if none was requested.

        It stays the next one until it is answered: by another upload if a run is trained again.
        """
        return self._looks[0] if self._looks else None

    def answer_look(self, name: str, summary: Summary) -> None:
        """Report what the next look has found; `name` is its name."""
        self._looks.popleft()
        self._report_look(name, summary)

    def end_when_quiet(self, quiet_seconds: float) -> None:
        """End the upload once no file has changed for this time, from now on.

        Repeating the call restarts the time; the shortest one counts.
        """
        self._quiet_since = time.monotonic()
        self._quiet_seconds = min(quiet_seconds, self._quiet_seconds)
        self._stop_token.wake()

    def end_with_process(self, quiet_seconds: float) -> None:
        """End the upload when quiet, or after RETRY_SECONDS_MAX: the process has just ended."""
        self._retry_until = time.monotonic() + RETRY_SECONDS_MAX
        self.end_when_quiet(HURRIED_QUIET_SECONDS if self.is_hurried else quiet_seconds)

    def hurry(self) -> None:
        """End the upload within STOP_GRACE_SECONDS; may be called from a signal handler.

        The process that writes was probably told to terminate too, and may be writing its last
        data: it is followed until it ends, or until the remaining time is needed to send the rest.
        """
        self._follow_until = time.monotonic() + STOP_GRACE_SECONDS - SENDING_SECONDS_MIN
        if self._retry_until < math.inf:
            self._quiet_seconds = HURRIED_QUIET_SECONDS

    @property
    def is_hurried(self) -> bool:
        """Return whether `hurry` was called."""
        return self._follow_until < math.inf

    def stop_if_due(self) -> None:
        """Stop the stop token when a time is over; to be called about every second."""
        now = time.monotonic()
        if now >= self._follow_until:
            self._stop_token.stop(SENDING_SECONDS_MIN)
        elif now >= self._retry_until:
            self._stop_token.stop()

    def has_been_quiet(self, changed_at: float = -math.inf) -> bool:
        """Return whether to end; `changed_at` is when a file changed last, on `time.monotonic`."""
        if self._quiet_seconds == math.inf:
            return False
        return time.monotonic() - max(changed_at, self._quiet_since) >= self._quiet_seconds
