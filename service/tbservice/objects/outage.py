"""Notice that the object store does not answer, and fail calls at once until it does again.

A call to a store that hangs would wait for its timeout, with one of the few turns of its workspace:
the workspace's scalars, which need no object store, would wait behind it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from botocore.exceptions import BotoCoreError, HTTPClientError, ReadTimeoutError
from botocore.exceptions import ConnectionError as NoConnection

_PROBE_PAUSE_SECONDS: Final = 1.0

_GRACE_SECONDS: Final = 1.0
"""Seconds after a failure in which calls wait for the probe: one connection may have broken."""


class ObjectStoreAway(BotoCoreError):  # type: ignore[misc] # botocore has no types
    """The object store did not answer lately, so this call was not sent."""

    fmt = "the object store did not answer lately"


class OutageDetector:
    """Watches the calls of a client, and probes the store while it is away.

    Args:
        probe: Asks the store whether it answers, within seconds. Raises BotoCoreError if it does
            not; any answer ends the outage, also a refusal.
    """

    def __init__(self, probe: Callable[[], object]) -> None:
        self._probe = probe
        self._lock = threading.Lock()
        self._began_at = 0.0
        self._answers = threading.Event()
        self._answers.set()
        self._has_closed = threading.Event()

    def watch(self, client: Any) -> None:
        """Fail the client's calls during an outage, each attempt for itself; notice outages."""
        client.meta.events.register("before-send.s3", self._refuse_if_away)
        client.meta.events.register("response-received.s3", self._note_failure)

    def close(self) -> None:
        """End the probing."""
        self._has_closed.set()

    def _refuse_if_away(self, **_: object) -> None:
        if not self._answers.wait(max(0.0, self._began_at + _GRACE_SECONDS - time.monotonic())):
            raise ObjectStoreAway

    def _note_failure(
        self, event_name: str, exception: BaseException | None = None, **_: object
    ) -> None:
        """Begin an outage after a failure that is the store's.

        A read that takes long is not: SeaweedFS needs many seconds to fail on a damaged object.
        """
        is_slow_read = isinstance(exception, ReadTimeoutError) and event_name.endswith("GetObject")
        if not isinstance(exception, NoConnection | HTTPClientError) or is_slow_read:
            return
        with self._lock:
            if not self._answers.is_set():
                return
            self._began_at = time.monotonic()
            self._answers.clear()
        threading.Thread(target=self._wait_for_answer, name="s3-probe", daemon=True).start()

    def _wait_for_answer(self) -> None:
        while not self._has_closed.is_set():
            try:
                self._probe()
            except BotoCoreError:
                self._has_closed.wait(_PROBE_PAUSE_SECONDS)
            except Exception:  # noqa: BLE001 - a refusal (ClientError) is an answer
                break
            else:
                break
        self._answers.set()
