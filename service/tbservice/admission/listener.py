"""New connections: those over a limit are reset, the others take turns by site.

A site is an IPv4 address or an IPv6 network of 48 bits, of which anybody gets all addresses.

Waiting connections are in one queue of the operating system, in the order in which they came. One
client can open more than the event loop serves, and would keep all others behind its own; a full
queue makes the system ignore connections, which their clients try again after 1, 3 and 7 seconds.
So that queue is emptied in each turn of the loop: to reset a connection takes a twentieth of the
time of serving it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tbservice import metrics
from tbservice.admission.callers import site_of
from tbservice.admission.pace import Pace
from tbservice.admission.pacing import THIS_MACHINE

CONNECTION_PACE: Final = 2.0
"""New connections (items) of an address or IPv6 network of 48 bits, likewise; others are reset."""

WAITING_CONNECTIONS_ITEMS_MAX: Final = 256
"""Connections (items) that a worker has accepted and not yet served; further ones wait outside."""

SITE_WAITING_CONNECTIONS_ITEMS_MAX: Final = 64
"""Connections (items) of one site among these; further ones are reset."""

_FILES_PER_WAITING_MIN: Final = 16
"""Files that a process may open for each connection that waits: others need most of them."""

_KEPT_PER_TURN_MAX: Final = 64
"""Connections that a turn of the loop keeps: other workers that have less to do take the rest."""

_ACCEPT_SECONDS_MAX: Final = 0.01
"""Seconds for which a turn of the loop accepts or resets connections.

That is some 500 of them; while a thread computes, each takes ten times as long, because a system
call gives Python's lock away.
"""

_NO_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_NO_FILES_PAUSE_SECONDS: Final = 1.0
"""Seconds until connections are accepted again after the process could open no file."""

_RESET: Final = struct.pack("ii", 1, 0)
"""A `struct linger` with which closing a socket sends a reset and keeps nothing (socket(7))."""

_NO_RESET: Final = struct.pack("ii", 0, 0)
"""A `struct linger` with which closing a socket sends what is left."""

_log = logging.getLogger(__name__)


class _Limit:
    """Limit on the connections that are accepted; `limit_connections` sets it."""

    def __init__(self, requests_per_second: float, trusted_proxies: str) -> None:
        self._rate = requests_per_second * CONNECTION_PACE
        # As uvicorn does it. Proxies open connections for all of their clients.
        trusting = ProxyHeadersMiddleware(_no_application, trusted_proxies)
        self._trusted = trusting.trusted_hosts
        self._pace = Pace()

    def permits(self, host: str, waiting: int) -> bool:
        """Count a new connection, of whose site so many wait; return whether to keep it."""
        if not self._rate or host in THIS_MACHINE or host in self._trusted:
            return True
        if waiting >= SITE_WAITING_CONNECTIONS_ITEMS_MAX:
            return False
        return self._pace.count([(site_of(host), self._rate)], wait_seconds_max=0) is not None


async def _no_application(*_arguments: Any) -> None:
    """Do nothing."""


_limit = _Limit(0, "")


def limit_connections(requests_per_second: float, trusted_proxies: str) -> None:
    """Limit new connections in this process, by the settings of these names."""
    global _limit  # noqa: PLW0603 - uvicorn makes the event loop without any argument
    _limit = _Limit(requests_per_second, trusted_proxies)


class Acceptor:
    """Accepts the connections of a listening socket, and serves one in each turn of the loop.

    Those that wait for their turn are served in rotation by site.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        """Begin; the socket does not block, and ends this when it is closed."""
        self._loop = loop
        self._listening = listening
        self._make_protocol = make_protocol
        self._waiting: OrderedDict[str, deque[socket.socket]] = OrderedDict()  # by site
        self._count = 0
        self._waiting_max = waiting_connections_max()
        self._is_scheduled = False
        self._beginning: set[asyncio.Task[Any]] = set()
        # Its connections inherit this, so that to close a connection resets it. Closed otherwise,
        # each would leave this side a socket in TIME-WAIT: RFC 9293, section 3.6.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._listen()

    def _listen(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        """Keep new connections that are permitted, and reset the others."""
        kept = reset = 0
        until = time.monotonic() + _ACCEPT_SECONDS_MAX
        over_limit: set[str] = set()  # addresses
        while (
            kept < _KEPT_PER_TURN_MAX
            and self._count < self._waiting_max
            and time.monotonic() < until
        ):
            try:
                number, address = _accept(self._listening)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                self._pause(error)
                break

            host = address[0]
            site = site_of(host)
            if host not in over_limit and _limit.permits(host, len(self._waiting.get(site, ()))):
                self._keep(number, site)
                kept += 1
            else:
                over_limit.add(host)
                os.close(number)
                reset += 1
        if reset:
            metrics.observe_over_share("new connections", reset)
        self._schedule()

    def _keep(self, number: int, site: str) -> None:
        """Let a connection wait for its turn; closing it sends what is left, as usual."""
        listening = self._listening
        connection = socket.socket(listening.family, listening.type, listening.proto, number)
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_RESET)
        self._waiting.setdefault(site, deque()).append(connection)
        self._count += 1

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a while: files become free when other connections end."""
        _log.warning("no connection can be accepted: %s", error.strerror)
        self._loop.remove_reader(self._listening.fileno())
        self._loop.call_later(_NO_FILES_PAUSE_SECONDS, self._listen)

    def _schedule(self) -> None:
        if self._count and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve_next)

    def _serve_next(self) -> None:
        """Serve one connection of the next site that has one whose client is still there."""
        self._is_scheduled = False
        while self._count:
            connection = self._take_next()
            if self._listening.fileno() < 0:  # the server stops
                _reset(connection)
            elif _is_connected(connection):
                self._serve(connection)
                break
            else:
                connection.close()
        self._schedule()

    def _take_next(self) -> socket.socket:
        """Return the oldest connection of the next site; its others wait for all sites."""
        site, connections = self._waiting.popitem(last=False)
        connection = connections.popleft()
        self._count -= 1
        if connections:
            self._waiting[site] = connections
        return connection

    def _serve(self, connection: socket.socket) -> None:
        beginning = self._loop.create_task(
            self._loop.connect_accepted_socket(self._make_protocol, connection)
        )
        self._beginning.add(beginning)  # the loop itself references no task
        beginning.add_done_callback(self._beginning.discard)


def waiting_connections_max() -> int:
    """Return how many connections may wait in a worker, by its limit of open files."""
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return min(WAITING_CONNECTIONS_ITEMS_MAX, max(1, files_max // _FILES_PER_WAITING_MIN))


def _accept(listening: socket.socket) -> tuple[int, Any]:
    """Accept a connection as `socket.accept` does, which then makes an object in twice the time."""
    accepted: tuple[int, Any] = listening._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - see above
    return accepted


def _is_connected(connection: socket.socket) -> bool:
    """Return whether the client has not reset the connection while it waited to be accepted."""
    try:
        connection.getpeername()
    except OSError:
        return False
    return True


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
