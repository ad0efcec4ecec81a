"""Choosing free loopback ports, the same ones at every start where possible."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable, Mapping

LOOPBACK = "127.0.0.1"
PORT_MIN, PORT_MAX = 12_000, 21_999
"""Below the range that systems draw outgoing ports from, so that no connection takes one between choice and use."""
GRPC_PORT_OFFSET = 10_000
"""SeaweedFS's own rule for a gRPC port that cannot be set: the HTTP port plus this."""


def choose_ports(
    names: Iterable[str],
    saved: Mapping[str, int],
    is_usable: Callable[[int], bool] = lambda _port: True,
) -> dict[str, int]:
    """A free port for each name, the remembered one where it may be; its twin, 10,000 up, is free as well."""
    chosen: dict[str, int] = {}
    for name in names:
        port = saved.get(name, 0)
        while port in chosen.values() or not (_is_free_with_grpc_port(port) and is_usable(port)):
            port = random.randint(PORT_MIN, PORT_MAX)  # noqa: S311 - not a secret
        chosen[name] = port
    return chosen


def _is_free_with_grpc_port(port: int) -> bool:
    return PORT_MIN <= port <= PORT_MAX and is_free(port) and is_free(port + GRPC_PORT_OFFSET)


def is_free(port: int) -> bool:
    """Tells whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a closed server's last connections do not count
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
