"""Another workspace at its usual work: its page, its reads, its flushes, each as a closed loop with
a pause.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import numpy as np

from support.batches import PROTOBUF, batch, scalars, segment, stream

REQUEST_SECONDS_MAX = 20.0
"""Seconds after which a request counts as failed."""

FLUSH_TAGS = 50
_OK = 200
_CARD = urlencode(
    {"requests": json.dumps([{"plugin": "scalars", "tag": "metrics/tag_00"}])}
).encode()
_ADDRESS = {"X-Forwarded-For": "198.51.100.7"}
"""The victim comes through a proxy, because a client on the service's own machine is not paced."""

_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
_PAGE = ("", "data/runs", "data/plugin/timeseries/tags")


@dataclass
class Latencies:
    """Latencies of one kind of request: seconds of each that was answered 200, and the failures by status or
    error.
    """

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def quantile(self, share: float) -> float:
        """Return the quantile in seconds; a failed request counts as `REQUEST_SECONDS_MAX`."""
        everything = self.seconds + [REQUEST_SECONDS_MAX] * self.failures.total()
        return float(np.quantile(everything, share)) if everything else float("nan")


class Refused(Exception):
    """An answer that is not 200."""


@dataclass(frozen=True)
class Victim:
    """A workspace's owner: `private` and `link` are experiments that are read, `written` one that
    is written to.
    """

    host: str
    port: int
    token: str
    private: str
    link: str
    written: str

    @contextmanager
    def at_work(self, kinds: tuple[str, ...]) -> Iterator[dict[str, Latencies]]:
        """Do the kinds of work, each in a thread of its own, while the block lasts; count only what
        ended by then.
        """
        works = self._works()
        by_kind = {kind: Latencies() for kind in kinds}
        ended = threading.Event()
        threads = [
            threading.Thread(target=_repeat, args=(*works[kind], by_kind[kind], ended), daemon=True)
            for kind in kinds
        ]
        for thread in threads:
            thread.start()
        try:
            yield by_kind
        finally:
            ended.set()
            for thread in threads:
                thread.join(4 * REQUEST_SECONDS_MAX)

    def _works(self) -> dict[str, tuple[Callable[[], None], float]]:
        """Return what is done, and the seconds between two of its beginnings, by kind: about 16 requests a
        second in all.
        """
        file, steps = f"events.out.tfevents.{time.monotonic_ns()}", [0]
        return {
            "page": (lambda: self._open_page(self.private, self.token), 0.8),
            "link page": (lambda: self._open_page(self.link, ""), 1.6),
            "sign-in": (lambda: self._request("GET", "/sign-in", token=""), 0.5),
            "read": (lambda: self._request("GET", self._data("scalars/data?downsample=1000")), 0.5),
            "write": (lambda: self._flush(file, steps), 0.5),
            "tail": (lambda: self._request("GET", self._data("scalars/tail"), bytes_max=1), 1.0),
            "stream": (lambda: self._request("GET", self._data("scalars/data?sampling=all")), 1.0),
        }

    def _data(self, path: str) -> str:
        return f"/api/v1/experiments/{self.private}/{path}"

    def _open_page(self, experiment_id: str, token: str) -> None:
        """Fetch what a browser fetches: the page, its listings and one card, one after the other."""
        base = f"/experiment/{experiment_id}/"
        for path in _PAGE:
            self._request("GET", base + path, token=token)
        self._request(
            "POST",
            f"{base}data/plugin/timeseries/timeSeries",
            token=token,
            body=_CARD,
            headers=_FORM,
        )

    def _flush(self, file: str, steps: list[int]) -> None:
        """Send one step of 50 tags; `steps` holds the next one, which stays the next after a
        failure.
        """
        path = f"/api/v1/experiments/{self.written}/batches"
        series = [scalars(f"metrics/tag_{tag:02d}", steps) for tag in range(FLUSH_TAGS)]
        body = batch(segment(stream(file_name=file), steps[0], steps[0] + 1, *series))
        self._request("POST", path, body=body, headers=PROTOBUF)
        steps[0] += 1

    def _request(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        bytes_max: int | None = None,
    ) -> None:
        """Send a request on a connection of its own and read its answer. Raises Refused, OSError,
        HTTPException.
        """
        token = self.token if token is None else token
        given = {
            **_ADDRESS,
            **(headers or {}),
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        connection = http.client.HTTPConnection(self.host, self.port, timeout=REQUEST_SECONDS_MAX)
        try:
            connection.request(method, path, body=body, headers=given)
            answer = connection.getresponse()
            answer.read(bytes_max)
        finally:
            connection.close()
        if answer.status != _OK:
            raise Refused(str(answer.status))


def _repeat(
    work: Callable[[], None], pause: float, latencies: Latencies, ended: threading.Event
) -> None:
    while not ended.is_set():
        began = time.monotonic()
        try:
            work()
            latencies.seconds.append(time.monotonic() - began)
        except Refused as error:
            latencies.failures[str(error)] += 1
        except (OSError, http.client.HTTPException) as error:
            latencies.failures[
                "timeout" if isinstance(error, TimeoutError) else type(error).__name__
            ] += 1
        ended.wait(max(0.0, began + pause - time.monotonic()))
