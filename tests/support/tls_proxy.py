"""TLS before a plain server, with a certificate signed by an authority that is created for the
test.
"""

from __future__ import annotations

import socket
import socketserver
import ssl
import subprocess
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.faulty_server import serving
from support.programs import find_program

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class TlsProxy:
    """Its URL, and the PEM file of the only authority that signed its certificate."""

    url: str
    ca_file: Path


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with (
            suppress(OSError),  # a client that does not trust us, or that has gone
            self.server.context.wrap_socket(self.request, server_side=True) as encrypted,
            socket.create_connection(self.server.target) as plain,
        ):
            for end in (encrypted, plain):  # else a piece behind another waits 40 ms for an ACK
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=forward, args=(plain, encrypted))
            back.start()
            forward(encrypted, plain)
            back.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def tls_proxy(port: int, directory: Path, host: str = "localhost"):
    """Forward TLS connections to the loopback port until the block ends; keys are created in
    `directory`.

    The certificate is for the loopback address, and for `host`.
    """
    certificate = make_certificate(directory, host)
    server = _Server((LOOPBACK, 0), _Connection)
    server.target = (LOOPBACK, port)
    server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.context.load_cert_chain(certificate)
    server.context.set_alpn_protocols(["http/1.1", "h2"])  # gRPC offers only h2
    url = f"https://{LOOPBACK}:{server.server_address[1]}"
    with serving(server):
        yield TlsProxy(url, directory / "authority.pem")


def forward(source: socket.socket, target: socket.socket) -> None:
    """Pass on what one socket sends to another, until either ends."""
    with suppress(OSError):
        while piece := source.recv(65_536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def make_certificate(directory: Path, host: str) -> Path:
    """Create a key and its certificate in one file, and `authority.pem` beside it."""
    program = find_program("openssl")
    authority, key, made = (
        directory / name for name in ("authority.pem", "key.pem", "certificate.pem")
    )
    request = [program, "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "1"]
    signed_by = directory / "authority-key.pem"
    commands = [
        [*request, "-subj", "/CN=a test's authority", "-keyout", signed_by, "-out", authority],
        [
            *(
                *request,
                "-subj",
                "/CN=a test's server",
                "-addext",
                f"subjectAltName=IP:{LOOPBACK},DNS:{host}",
            ),
            *(
                "-addext",
                "basicConstraints=critical,CA:FALSE",
                "-CA",
                authority,
                "-CAkey",
                signed_by,
            ),
            *("-keyout", key, "-out", made),
        ],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    both = directory / "server.pem"
    both.write_bytes(key.read_bytes() + made.read_bytes())
    return both
