"""A forward proxy that opens tunnels (CONNECT), as companies have, with its own table of host
names.
"""

from __future__ import annotations

import select
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.faulty_server import serving

LOOPBACK = "127.0.0.1"


@dataclass
class ForwardProxy:
    """Its URL, the hosts it was asked to connect to ("host:port"), and the credentials sent."""

    url: str
    asked: list[str] = field(default_factory=list)
    credentials: list[str | None] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        proxy: ForwardProxy = self.server.proxy
        proxy.asked.append(self.path)
        proxy.credentials.append(self.headers.get("Proxy-Authorization"))
        target = self.server.ports.get(self.path.partition(":")[0])
        if target is None:
            self.send_error(502, "no such host")
            return
        with socket.create_connection((LOOPBACK, target)) as there:
            self.send_response(200)
            self.end_headers()
            self.close_connection = True
            _carry(self.connection, there)

    def log_message(self, *_arguments) -> None:
        """Log nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _carry(client: socket.socket, server: socket.socket) -> None:
    """Forward bytes both ways until one side ends."""
    partners = {client: server, server: client}
    for end in partners:  # each piece at once: else one behind another waits 40 ms for an ACK
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        for source in select.select(list(partners), [], [])[0]:
            piece = source.recv(65_536)
            if not piece:
                return
            partners[source].sendall(piece)


@contextmanager
def forward_proxy(ports: dict[str, int]):
    """Run until the block ends; it knows the hosts of `ports` only, and connects each to that
    loopback port.
    """
    server = _Server((LOOPBACK, 0), _Handler)
    server.ports = ports
    server.proxy = ForwardProxy(f"http://{LOOPBACK}:{server.server_address[1]}")
    with serving(server):
        yield server.proxy
