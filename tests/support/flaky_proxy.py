"""An HTTP proxy before the live service that loses requests and answers, as a bad network does."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2

_OF_ONE_CONNECTION = frozenset(
    {"connection", "host", "content-length", "transfer-encoding", "date", "server"}
)

_HELD_SECONDS_MAX = 60


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.next_fault() if self.command in {"POST", "PUT"} else ""
        if len(body) > self.server.bytes_max:
            self._send(
                413, {"Content-Type": "text/html"}, b"<html>413 Request Entity Too Large</html>"
            )
        elif fault == "503":
            self._send(503, {"Retry-After": "0"}, b"{}")
        else:
            self._carry_out(body, fault)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names http.server calls

    def _carry_out(self, body: bytes, fault: str) -> None:
        reply = None if fault == "lost" else self._forward(body)
        if reply is None or fault == "unanswered":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            if self.path.endswith("/batches"):
                self.server.answers_batches.wait(_HELD_SECONDS_MAX)
            self._send(reply.status_code, _end_to_end(reply.headers), reply.content)

    def _forward(self, body: bytes) -> httpx2.Response:
        url = self.server.target + self.path
        return self.server.client.request(
            self.command, url, headers=_end_to_end(self.headers), content=body
        )

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments) -> None:
        """Log nothing."""


class _Proxy(ThreadingHTTPServer):
    def __init__(
        self,
        target: str,
        faults: Iterable[str],
        bytes_max: int,
        client: httpx2.Client,
        answers_batches: threading.Event,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.bytes_max = bytes_max
        self.client = client
        self.answers_batches = answers_batches
        self._faults = itertools.cycle(faults)
        self._lock = threading.Lock()

    def next_fault(self) -> str:
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
    bytes_max: int = 1 << 30,
    *,
    answers_batches: threading.Event | None = None,
):
    """Run a proxy to `target`; yield its URL.

    Each write takes the next of `faults`, cyclically: "" forwards it, "lost" drops the request,
    "unanswered" forwards it and drops the answer, "503" refuses it. A body over `bytes_max` is
    refused with 413 and an HTML page, as nginx does. Answers to batches, which the service has
    stored by then, are held back until `answers_batches` is set.
    """
    if answers_batches is None:
        answers_batches = threading.Event()
        answers_batches.set()
    with httpx2.Client(trust_env=False, timeout=60) as client:
        proxy = _Proxy(target, faults, bytes_max, client, answers_batches)
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"
        finally:
            proxy.shutdown()
            thread.join()
            proxy.server_close()
