"""A small HTTP server on loopback that answers by a script, with faults: dropped connections, half
answers.
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EXPERIMENT = {
    "experiment_id": "abc",
    "url": "http://tbhub.example/experiment/abc/",
    "name": "",
    "description": "",
    "visibility": "private",
    "created_at": "2026-11-22T00:00:00Z",
}
"""Answer to every request that a script says nothing about."""


@dataclass(frozen=True)
class Reply:
    """A response. `fault`: "drop" closes the connection without one, "half" in the middle of it."""

    status: int = 200
    body: bytes = json.dumps(EXPERIMENT).encode()
    headers: dict[str, str] = field(default_factory=dict)
    fault: str = ""


@dataclass(frozen=True)
class Request:
    """Request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def refusal(
    status: int, code: str = "some_code", *, headers: dict[str, str] | None = None, **fields
) -> Reply:
    """Return an error as the service encodes it."""
    content = {"code": code, "detail": f"the detail of {code}", **fields}
    return Reply(status, json.dumps(content).encode(), headers or {})


class FaultyServer:
    """Answers with `replies` in order, the last one forever; records the requests."""

    def __init__(self) -> None:
        self.replies: list[Reply] = [Reply()]
        self.requests: list[Request] = []
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def take(self, request: Request) -> Reply:
        """Record the request and choose the response."""
        with self._lock:
            self.requests.append(request)
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # a body after the headers would wait 40 ms for an ACK

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                reply = faulty.take(
                    Request(
                        self.command,
                        self.path,
                        {name.title(): value for name, value in self.headers.items()},
                        body,
                    )
                )
                if reply.fault == "drop":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.status != 204:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(
                    reply.body[: len(reply.body) // 2] if reply.fault == "half" else reply.body
                )
                self.close_connection = self.close_connection or reply.fault == "half"

            def log_message(self, *_arguments) -> None:
                """Log nothing: requests are recorded."""

        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler._answer)
        return Handler


@contextmanager
def faulty_server():
    """A running FaultyServer."""
    with running(FaultyServer()) as faulty:
        yield faulty


@contextmanager
def running(faulty):
    """Run the server until the block ends."""
    with serving(faulty.server):
        yield faulty


@contextmanager
def serving(server):
    """Run a server of `socketserver` in a thread until the block ends, and close it."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
