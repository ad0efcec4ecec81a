"""An HTTP proxy before the live service that loses requests and answers, as a bad network does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from contextlib import contextmanager

import httpx2

from support.faulty_server import FaultyServer, Reply, Request, running
from support.servers import http_client

_OF_ONE_CONNECTION = frozenset(
    {"connection", "host", "content-length", "transfer-encoding", "date", "server"}
)

_HELD_SECONDS_MAX = 60
_DROPPED = Reply(fault="drop")


class _Proxy(FaultyServer):
    def __init__(
        self,
        target: str,
        faults: Iterable[str],
        client: httpx2.Client,
        answers_batches: threading.Event,
    ) -> None:
        super().__init__()
        self._target = target
        self._client = client
        self._answers_batches = answers_batches
        self._faults = itertools.cycle(faults)

    def take(self, request: Request) -> Reply:
        """Forward the request, unless it meets a fault."""
        fault = self._next_fault() if request.method in {"POST", "PUT"} else ""
        if fault == "503":
            return Reply(503, b"{}", {"Retry-After": "0"})
        if fault == "lost":
            return _DROPPED
        answer = self._client.request(
            request.method,
            self._target + request.path,
            headers=_end_to_end(request.headers),
            content=request.body,
        )
        if fault == "unanswered":
            return _DROPPED
        if request.path.endswith("/batches"):
            self._answers_batches.wait(_HELD_SECONDS_MAX)
        return Reply(answer.status_code, answer.content, _end_to_end(answer.headers))

    def _next_fault(self) -> str:
        with self._lock:
            return next(self._faults)


def _end_to_end(headers) -> dict[str, str]:
    return {
        name: value for name, value in headers.items() if name.lower() not in _OF_ONE_CONNECTION
    }


@contextmanager
def flaky_proxy(
    target: str,
    faults: Iterable[str],
    *,
    answers_batches: threading.Event | None = None,
):
    """Run a proxy to `target`; yield its URL.

    Each write takes the next of `faults`, cyclically: "" forwards it, "lost" drops the request,
    "unanswered" forwards it and drops the answer, "503" refuses it. Answers to batches, which
    the service has stored by then, are held back until `answers_batches` is set.
    """
    if answers_batches is None:
        answers_batches = threading.Event()
        answers_batches.set()
    with (
        http_client() as client,
        running(_Proxy(target, faults, client, answers_batches)) as proxy,
    ):
        yield proxy.url
