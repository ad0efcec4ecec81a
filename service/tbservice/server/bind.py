"""The address to listen on.

The socket is bound before anything else starts, so that a port in use is reported first.
"""

from __future__ import annotations

import errno
import socket

from tbservice.errors import StartupError

WILDCARD_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - compared with, never a default


def bind_socket(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a socket that is bound to the address and does not listen yet.

    With `is_shared`, other sockets of this user may be bound to it too (SO_REUSEPORT). Raises
    StartupError if the address is in use or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        raise StartupError(_explain(host, port, error)) from error
    bound.set_inheritable(True)
    return bound


def public_url(host: str, port: int) -> str:
    """Return the URL for other machines: with this machine's name if `host` is a wildcard."""
    if host in WILDCARD_ADDRESSES:
        host = socket.gethostname()
        try:
            socket.getaddrinfo(host, port)
        except OSError:
            host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_url(host: str, port: int) -> str:
    """Return the URL for programs on this machine."""
    return f"http://127.0.0.1:{port}" if host in WILDCARD_ADDRESSES else public_url(host, port)


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use: stop its server, or choose another port"
    if error.errno == errno.EACCES:
        return f"port {port} needs root privileges: choose one above 1023"
    return f"cannot listen on {host} port {port}: {error.strerror}"
