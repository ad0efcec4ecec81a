"""A listening socket that drops connections that were reset, or of addresses that open too many.

Waiting connections are in one queue of the operating system, and each that is served costs the
event loop a part of a millisecond. One client can open more than that, and would keep all others
behind its own. To drop a connection takes a twentieth of the time.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tbservice import metrics
from tbservice.admission.callers import site_of
from tbservice.admission.pacing import THIS_MACHINE, Pace

CONNECTION_PACE: Final = 2.0
"""New connections (items) of an address or IPv6 network of 48 bits, likewise; others are reset."""

_DROPPED_PER_TURN_MAX: Final = 64
"""Connections that are dropped before the event loop serves others again: two milliseconds."""

_RESET: Final = struct.pack("ii", 1, 0)
"""A `struct linger` with which closing sends a reset, and keeps nothing (Linux, tcp(7))."""


class _Limit:
    """Which connections are accepted; `limit_connections` sets it."""

    def __init__(self, requests_per_second: float, trusted_proxies: str) -> None:
        self._rate = requests_per_second * CONNECTION_PACE
        # As uvicorn does it. Proxies open connections for all of their clients.
        trusting = ProxyHeadersMiddleware(_no_application, trusted_proxies)
        self._trusted = trusting.trusted_hosts
        self._pace = Pace()

    def permits(self, host: str) -> bool:
        """Count a new connection of this host; return whether it is accepted."""
        if not self._rate or host in THIS_MACHINE or host in self._trusted:
            return True
        return self._pace.count([(site_of(host), self._rate)], wait_seconds_max=0) is not None


async def _no_application(*_arguments: Any) -> None:
    """Do nothing."""


_limit = _Limit(0, "")


def limit_connections(requests_per_second: float, trusted_proxies: str) -> None:
    """Limit new connections in this process, by the settings of these names."""
    global _limit  # noqa: PLW0603 - uvicorn makes the event loop without any argument
    _limit = _Limit(requests_per_second, trusted_proxies)


class PacedListener(socket.socket):
    """A listening socket that skips connections that were reset, or are over a limit."""

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept the next connection that is permitted. Raises BlockingIOError if there is none."""
        for _ in range(_DROPPED_PER_TURN_MAX):
            connection, address = super().accept()
            if not _is_connected(connection):
                connection.close()
                continue
            if _limit.permits(address[0]):
                return connection, address
            metrics.observe_over_share("new connections")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.close()
        raise BlockingIOError


def _is_connected(connection: socket.socket) -> bool:
    """Return whether the client has not reset the connection while it waited to be accepted."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True
