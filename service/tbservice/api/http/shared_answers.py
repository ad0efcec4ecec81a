"""Answers that a worker keeps for a moment: many viewers of an experiment ask for the same ones.

An answer is kept under its ETag, which changes with the experiment, and is found only after the
right of the request was looked up, by a grant that shows the same. It is as new as its ETag, or
newer, as in the copies of clients. It is forgotten after `ANSWER_SECONDS_MAX`, so that nothing
outlives a failover or a restore for long (decision 13).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final

from fastapi import Request, Response

from tbservice import limits
from tbservice.types.grants import Grant

ANSWER_SECONDS_MAX: Final = 5.0
"""Seconds for which an answer is kept."""

ANSWER_BYTES_MAX: Final = 4 * limits.MIB
"""Bytes of an answer that is kept, as it is sent."""

ANSWERS_BYTES_MAX: Final = 16 * limits.MIB
"""Bytes of all answers that a worker keeps."""


@dataclass(frozen=True, slots=True)
class _KeptAnswer:
    """The body and the headers of a response with the status 200."""

    body: bytes
    headers: dict[str, str]
    until: float


class SharedAnswers:
    """The answers of a worker, the oldest first. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any; `clock` returns seconds."""
        self._clock = clock
        self._answers: OrderedDict[Hashable, _KeptAnswer] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Response | None:
        """Return a response of an answer that is kept under this key, or None."""
        with self._lock:
            self._forget_old()
            kept = self._answers.get(key)
        return None if kept is None else Response(kept.body, headers=kept.headers)

    def put(self, key: Hashable, response: Response) -> None:
        """Keep the answer of a response, unless it is large, streamed or an error."""
        body = getattr(response, "body", None)
        is_shared = response.status_code == 200 and isinstance(body, bytes)  # noqa: PLR2004 - HTTP's
        if not is_shared or not isinstance(body, bytes) or len(body) > ANSWER_BYTES_MAX:
            return
        kept = _KeptAnswer(body, dict(response.headers), self._clock() + ANSWER_SECONDS_MAX)
        with self._lock:
            if key not in self._answers:
                self._answers[key] = kept
                self._bytes += len(body)
            self._forget_old()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._answers:
            oldest = next(iter(self._answers.values()))
            if oldest.until > now and self._bytes <= ANSWERS_BYTES_MAX:
                return
            self._answers.popitem(last=False)
            self._bytes -= len(oldest.body)


def make_key(request: Request, grant: Grant, etag: str) -> Hashable:
    """Return the key of the answer to a GET, for all whose grant shows the same."""
    return replace(grant, user_id=None), request.url.path, request.url.query, etag
