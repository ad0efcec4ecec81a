"""Choose loopback ports that are free and that nobody else chooses."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Final

LOOPBACK = "127.0.0.1"
PORT_MIN, PORT_MAX = 12_000, 21_999
"""Ports below the ephemeral range of operating systems.

Outgoing connections use none of them between the choice of a port and its use.
"""
GRPC_PORT_OFFSET = 10_000
"""Offset from SeaweedFS's HTTP port to a gRPC port that no option sets."""

_claims: Final[dict[int, int]] = {}
"""Descriptors of sockets that show other processes that a port is taken, by port; see `_claim`.

As objects, those that are open at the end of the process would each be warned of.
"""


def choose_ports(
    names: Iterable[str],
    saved: Mapping[str, int],
    is_usable: Callable[[int], bool] = lambda _port: True,
) -> dict[str, int]:
    """Return a free port for each name; the saved one if possible, even if this process has it.

    The port `GRPC_PORT_OFFSET` above is free too. No other call returns them until this process
    ends or calls `release_ports`: a server may listen on its last port a minute after its start.
    """
    ports: dict[str, int] = {}
    for name in names:
        port = saved.get(name, 0)
        release_ports([port])
        while not (PORT_MIN <= port <= PORT_MAX and is_usable(port) and _claim(port)):
            port = random.randint(PORT_MIN, PORT_MAX)  # noqa: S311 - not a secret
        ports[name] = port
    return ports


def release_ports(ports: Iterable[int]) -> None:
    """Let others choose these ports. Idempotent."""
    for port in ports:
        if port in _claims:
            os.close(_claims.pop(port))


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


def _claim(port: int) -> bool:
    """Claim a port and its gRPC port; return whether both are free and nobody has claimed them.

    The claim is a Unix socket whose name is no file. Linux frees it when the process ends, however
    that happens, and has one such name for each network namespace, as it has one such port.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        if sys.platform == "linux":
            claim.bind(f"\0tbhub-port-{port}")
    except OSError:
        claim.close()
        return False
    if is_free(port) and is_free(port + GRPC_PORT_OFFSET):
        _claims[port] = claim.detach()
        return True
    claim.close()
    return False
