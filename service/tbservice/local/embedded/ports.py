"""Choose free loopback ports, the same ones at every start if possible."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping

LOOPBACK = "127.0.0.1"
PORT_MIN, PORT_MAX = 12_000, 21_999
"""Ports below the ephemeral range of operating systems.

Outgoing connections use none of them between the choice of a port and its use.
"""
GRPC_PORT_OFFSET = 10_000
"""Offset from SeaweedFS's HTTP port to a gRPC port that no option sets."""


def choose_ports(
    names: Iterable[str],
    saved: Mapping[str, int],
    is_usable: Callable[[int], bool] = lambda _port: True,
) -> dict[str, int]:
    """Return a free port for each name, the saved one if possible.

    The port `GRPC_PORT_OFFSET` above is free too.
    """
    ports: dict[str, int] = {}
    for name in names:
        port = saved.get(name, 0)
        while port in ports.values() or not (_is_free_with_grpc_port(port) and is_usable(port)):
            port = random.randint(PORT_MIN, PORT_MAX)  # noqa: S311 - not a secret
        ports[name] = port
    return ports


def _is_free_with_grpc_port(port: int) -> bool:
    return PORT_MIN <= port <= PORT_MAX and is_free(port) and is_free(port + GRPC_PORT_OFFSET)


def is_free(port: int) -> bool:
    """Return whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        # Ignores connections of a closed server in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
