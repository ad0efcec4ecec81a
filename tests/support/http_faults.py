"""An HTTP proxy before a real server, the service or SeaweedFS, that spoils selected calls: lost,
cut, doubled, late.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from support.faulty_server import running

SECONDS_MAX = 60
"""No call takes longer."""

HELD_SECONDS_MAX = 0.3
"""How long a call is held back for another one to overtake it; perhaps none is under way."""

_OF_ONE_CONNECTION = frozenset({"connection", "expect", "transfer-encoding", "content-length"})


@dataclass(frozen=True)
class Reply:
    """A server's answer; of a cut one, half arrives."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    is_cut: bool = False


@dataclass(frozen=True)
class Call:
    """A request as it arrived; forwarded byte for byte, its Host header included, because S3 signs
    that.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def forward(self, target: str, *, body_bytes: int | None = None) -> Reply:
        """Forward the request; with `body_bytes`, only that much of the body before the connection
        breaks.
        """
        parts = urlsplit(target)
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=SECONDS_MAX)
        try:
            connection.putrequest(self.method, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers:
                if name.lower() not in _OF_ONE_CONNECTION:
                    connection.putheader(name, value)
            if self.body or self.method in {"POST", "PUT"}:
                connection.putheader("Content-Length", str(len(self.body)))
            connection.endheaders(self.body[:body_bytes])
            if body_bytes is not None:
                raise ConnectionAbortedError("cut on purpose")
            answer = connection.getresponse()
            return Reply(answer.status, answer.reason, answer.getheaders(), answer.read())
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self) -> None:
        proxy: HttpFaults = self.server.proxy
        with proxy.busy():
            call = Call(self.command, self.path, list(self.headers.items()), self._body())
            try:
                reply = proxy.treat(call, self._hang_up)
            except (
                OSError,
                http.client.HTTPException,
            ):  # the server has gone, or the fault is that it seems so
                reply = None
            if reply is None:
                self._hang_up()
            else:
                self._send(reply)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the names http.server calls

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):  # the client may have gone before
            self.connection.shutdown(socket.SHUT_RDWR)

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.headers:
            if name.lower() not in _OF_ONE_CONNECTION or (
                name.lower() == "content-length" and self.command == "HEAD"
            ):
                self.send_header(name, value)
        if self.command != "HEAD" and reply.status not in {204, 304}:
            self.send_header("Content-Length", str(len(reply.body)))
        with suppress(OSError):  # the client may have been killed
            self.end_headers()
            self.wfile.write(reply.body[: len(reply.body) // 2] if reply.is_cut else reply.body)
        if reply.is_cut:
            self._hang_up()

    def log_message(self, *_arguments) -> None:
        """Log nothing."""


class HttpFaults:
    """Counts calls and spoils those it is armed for; others pass. Clients connect to `url`."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.server.proxy = self
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._changes = threading.Condition()
        self._busy = self._answered = 0
        self.disarm()

    def arm(self, faults: Mapping[int, str], *, then: Callable[[], None] | None = None) -> None:
        """Spoil calls in the ways of FAULTS, by number, counted from 1 and from now.

        `then` is called when such a call has arrived, before it is treated.
        """
        self._faults, self._then = faults, then
        self.calls: list[tuple[str, str]] = []
        self.hits = 0

    def disarm(self) -> None:
        """Let every call pass, and count from zero."""
        self.arm({})

    def treat(self, call: Call, hang_up: Callable[[], None]) -> Reply | None:
        """Return the answer to a call; None if the client gets none."""
        with self._changes:
            self.calls.append((call.method, call.path))
            fault, then = self._faults.get(len(self.calls)), self._then
            self.hits += fault is not None
        if fault is not None and then is not None:
            then()
        try:
            return (
                call.forward(self.target) if fault is None else FAULTS[fault](self, call, hang_up)
            )
        finally:
            with self._changes:
                self._answered += 1
                self._changes.notify_all()

    def wait_overtaken(self) -> None:
        """Wait until another call has been answered, at most HELD_SECONDS_MAX."""
        with self._changes:
            before = self._answered
            self._changes.wait_for(lambda: self._answered > before, HELD_SECONDS_MAX)

    @contextmanager
    def busy(self):
        """Count a call in progress."""
        with self._changes:
            self._busy += 1
        try:
            yield
        finally:
            with self._changes:
                self._busy -= 1
                self._changes.notify_all()

    def wait_idle(self) -> None:
        """Wait until no call is in progress, not even one whose client has disconnected."""
        with self._changes:
            assert self._changes.wait_for(lambda: not self._busy, SECONDS_MAX), (
                "calls that do not end"
            )


def _lost(_proxy: HttpFaults, _call: Call, _hang_up: Callable[[], None]) -> None:
    return None


def _unanswered(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> None:
    call.forward(proxy.target)


def _half_sent(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> None:
    call.forward(proxy.target, body_bytes=len(call.body) // 2)


def _half_answered(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> Reply:
    return replace(call.forward(proxy.target), is_cut=True)


def _twice(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> Reply:
    call.forward(proxy.target)
    return call.forward(proxy.target)


def _twice_at_once(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> Reply:
    other = threading.Thread(target=call.forward, args=(proxy.target,))
    other.start()
    try:
        return call.forward(proxy.target)
    finally:
        other.join()


def _overtaken(proxy: HttpFaults, call: Call, _hang_up: Callable[[], None]) -> Reply:
    proxy.wait_overtaken()
    return call.forward(proxy.target)


def _lost_and_late(proxy: HttpFaults, call: Call, hang_up: Callable[[], None]) -> None:
    hang_up()
    proxy.wait_overtaken()  # by its own repetition, if by nothing else
    call.forward(proxy.target)


def _refusal(status: int, headers: list[tuple[str, str]]):
    def refuse(_proxy: HttpFaults, _call: Call, _hang_up: Callable[[], None]) -> Reply:
        return Reply(status, http.client.responses[status], headers, b"")

    return refuse


FAULTS = {
    "lost": _lost,  # never forwarded, and the connection closed
    "unanswered": _unanswered,  # carried out, and the connection closed: cut after the commit
    "half sent": _half_sent,  # half of the body arrives
    "half answered": _half_answered,  # carried out, and half of the answer arrives
    "twice": _twice,  # carried out twice, and the second's answer given
    "twice at once": _twice_at_once,
    "overtaken": _overtaken,  # forwarded after a later call has been answered
    # the client is told it was lost, and it arrives after its repetition
    "lost and late": _lost_and_late,
    "500": _refusal(500, []),
    "503": _refusal(503, [("Retry-After", "0")]),
    "429": _refusal(429, [("Retry-After", "1")]),
}


@contextmanager
def http_faults(target: str):
    """Run an HttpFaults before the server at `target`, disarmed."""
    with running(HttpFaults(target)) as proxy:
        yield proxy
