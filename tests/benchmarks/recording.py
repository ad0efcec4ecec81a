"""Real batches, to be sent again: a proxy that keeps what `tbupload` sends, and a sender as fast as
the server takes.

An experiment knows nothing of another's streams, so the same bytes are fresh to each.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

import urllib3

from tbwire import wire_pb2

CONNECTIONS = 3
"""Requests under way at once, as `tbupload` has."""

_DROPPED = {"host", "connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(frozen=True)
class Request:
    """A batch as it was sent, and the streams it continues: one batch of a stream is under way at a
    time.
    """

    body: bytes
    headers: dict[str, str]
    streams: frozenset[bytes]


@dataclass
class Recording:
    """What went through the proxy, in order."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all bodies."""
        return sum(len(request.body) for request in self.requests)


@contextmanager
def recorded(server: str) -> Iterator[Recording]:
    """A proxy in front of the server, while the block lasts: batches that were taken are kept."""
    recording = Recording()
    pool = urllib3.PoolManager(maxsize=8)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None: ...

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {
                name: value for name, value in self.headers.items() if name.lower() not in _DROPPED
            }
            answer = pool.request(
                self.command,
                server + self.path,
                body=body,
                headers=headers,
                decode_content=False,
                retries=False,
            )
            if self.path.endswith("/batches") and answer.status == http.HTTPStatus.OK:
                streams = _streams(answer.data)
                recording.requests.append(Request(body, headers, streams))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _DROPPED:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)

        do_GET = do_POST = do_PUT = do_PATCH = _pass_on  # noqa: N815 - http.server's names

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    recording.url = f"http://127.0.0.1:{proxy.server_port}"
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield recording
    finally:
        proxy.shutdown()
        proxy.server_close()


def _streams(result: bytes) -> frozenset[bytes]:
    cursors = wire_pb2.WriteResult.FromString(result).cursors
    return frozenset(cursor.stream.SerializeToString(deterministic=True) for cursor in cursors)


def send(
    server: str, experiment_id: str, requests: list[Request], connections: int = CONNECTIONS
) -> float:
    """Seconds until all batches are committed to the experiment; those of one stream in their
    order.
    """
    url = f"{server}/api/v1/experiments/{experiment_id}/batches"
    pool = urllib3.PoolManager(maxsize=connections)

    def post(request: Request) -> Request:
        answer = pool.request(
            "POST", url, body=request.body, headers=request.headers, retries=False
        )
        assert answer.status == http.HTTPStatus.OK, answer.data
        return request

    waiting, busy, flying = list(requests), set(), set[Future[Request]]()
    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        while waiting or flying:
            blocked = set(busy)
            for request in list(waiting[: 8 * connections]):
                if len(flying) < connections and not request.streams & blocked:
                    waiting.remove(request)
                    busy |= request.streams
                    flying.add(threads.submit(post, request))
                blocked |= request.streams
            done, flying = wait(flying, return_when=FIRST_COMPLETED)
            for future in done:
                busy -= future.result().streams
    return time.perf_counter() - began
