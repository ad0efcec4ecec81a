"""A TCP relay with a round trip time, as of a server in another region; its bandwidth is not limited."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_READ_BYTES = 64 << 10


@contextmanager
def slow_link(url: str, round_trip_seconds: float):
    """Yield the URL of a relay before a server of this machine, while the block lasts."""
    parts = urlsplit(url)
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = (parts.hostname, parts.port)
        accepting = threading.Thread(
            target=_accept, args=(server, target, round_trip_seconds / 2), daemon=True
        )
        accepting.start()
        yield f"{parts.scheme}://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, target: tuple[str, int], delay_seconds: float) -> None:
    with suppress(OSError):
        while True:
            near, _ = server.accept()
            far = socket.create_connection(target)
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _relay(source, sink, delay_seconds)


def _relay(source: socket.socket, sink: socket.socket, delay_seconds: float) -> None:
    """Send what arrives that much later; what follows is not delayed by what was before it."""
    delayed: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def receive() -> None:
        content = b"-"
        while content:
            try:
                content = source.recv(_READ_BYTES)
            except OSError:
                content = b""
            delayed.put((time.monotonic() + delay_seconds, content))

    def send() -> None:
        with suppress(OSError):
            while True:
                due, content = delayed.get()
                time.sleep(max(0.0, due - time.monotonic()))
                if not content:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(content)

    for work in (receive, send):
        threading.Thread(target=work, daemon=True).start()
