"""The gRPC server of one worker: its port, its options, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Final

import grpc

from tbservice import limits
from tbservice.admission.callers import site_of
from tbservice.settings import Settings

GRPC_CALLS_ITEMS_MAX: Final = 4_096
"""Calls (items) of gRPC that one worker has open at once; further ones are refused."""

GRPC_CONNECTION_CALLS_ITEMS_MAX: Final = 256
"""Calls (items) that one gRPC connection has open at once; its client queues further ones.

Except on a new connection, before the client has learned this limit: then the rest of a burst is
refused unhandled, which is UNAVAILABLE in Python. More would wait here instead, and be refused
after `QUEUE_WAIT_SECONDS_MAX`.
"""

GRPC_ADDRESS_CONNECTIONS_ITEMS_MAX: Final = 512
"""gRPC connections (items) of one address; those above it are closed at the next look."""

GRPC_CONNECTIONS_LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at how many connections each client address has."""

GRPC_IDLE_CONNECTION_SECONDS_MAX: Final = 30.0
"""Seconds without a call after which a gRPC connection is closed; clients open another."""

_log: Final = logging.getLogger(__name__)

_DESCRIPTORS: Final = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"


class GrpcListener:
    """Serves on `settings.grpc_port` from `start` until `begin_stop`, in the running event loop."""

    def __init__(
        self, settings: Settings, handlers: Iterable[grpc.GenericRpcHandler], stop_seconds: float
    ) -> None:
        """Bind nothing yet; calls in progress at the stop may take `stop_seconds`."""
        self._settings = settings
        self._handlers = tuple(handlers)
        self._stop_seconds = stop_seconds
        self._server: grpc.aio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Accept connections. Raises RuntimeError if the port cannot be bound."""
        self._server = grpc.aio.server(
            options=_options(), maximum_concurrent_rpcs=GRPC_CALLS_ITEMS_MAX
        )
        self._server.add_generic_rpc_handlers(self._handlers)
        host = self._settings.host
        address = f"[{host}]" if ":" in host else host
        address = f"{address}:{self._settings.grpc_port}"
        certificate, key = self._settings.grpc_certificate_file, self._settings.grpc_key_file
        if certificate is not None and key is not None:
            pair = key.read_bytes(), certificate.read_bytes()
            self._server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        else:
            self._server.add_insecure_port(address)
        await self._server.start()
        self._watching = asyncio.create_task(self._watch_connections())

    def begin_stop(self) -> None:
        """Refuse further calls, and let those in progress end. Idempotent; call it in the loop."""
        if self._server is not None and self._stopping is None:
            self._stopping = asyncio.create_task(self._server.stop(self._stop_seconds))
            if self._watching is not None:
                self._watching.cancel()

    async def wait_stopped(self) -> None:
        """Return when all calls have ended, or have had `stop_seconds` and were cancelled.

        A call whose statement still runs then ends with the database: see `Database.stop`.
        """
        self.begin_stop()
        if self._stopping is not None:
            await asyncio.wait({self._stopping}, timeout=self._stop_seconds)

    async def _watch_connections(self) -> None:
        """Keep the connections of each client address within their limit."""
        port, items_max = self._settings.grpc_port, GRPC_ADDRESS_CONNECTIONS_ITEMS_MAX
        assert port is not None  # noqa: S101 - no listener without one
        while True:
            await asyncio.sleep(GRPC_CONNECTIONS_LOOK_SECONDS)
            count = await asyncio.to_thread(_shut_down_excess, port, items_max)
            if count:
                _log.warning(
                    "closed %d gRPC connections of addresses that had more than %d",
                    count,
                    items_max,
                )


def _options() -> list[tuple[str, int]]:
    idle_seconds = GRPC_IDLE_CONNECTION_SECONDS_MAX
    return [
        ("grpc.so_reuseport", 1),  # each worker binds the port, and the kernel spreads connections
        ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", GRPC_CONNECTION_CALLS_ITEMS_MAX),
        ("grpc.max_allowed_incoming_connections", limits.GRPC_CONNECTIONS_ITEMS_MAX),
        ("grpc.max_connection_idle_ms", int(1_000 * idle_seconds)),
        ("grpc.server_handshake_timeout_ms", int(1_000 * limits.REQUEST_HEADER_SECONDS_MAX)),
        # A stream's window stays at 64 KiB until its message is received: see `calls`.
        ("grpc.http2.bdp_probe", 0),
    ]


def _shut_down_excess(port: int, items_max: int) -> int:
    """Shut down connections to the port of client addresses that have more than `items_max`.

    Return how many. They are mostly the newest of the address, whatever happens on them. It takes
    milliseconds where the process has more open files than `items_max`, else microseconds.
    """
    descriptors = os.listdir(_DESCRIPTORS)  # noqa: PTH208 - a third of the time of `iterdir`
    if len(descriptors) <= items_max:
        return 0
    by_address: Counter[str] = Counter()
    count = 0
    for descriptor in descriptors:
        # Not of a socket, of one that listens, or closed meanwhile by another thread.
        with contextlib.suppress(OSError), _duplicate(int(descriptor)) as connection:
            if not _is_at(connection, port):
                continue
            address = site_of(connection.getpeername()[0])
            by_address[address] += 1
            if by_address[address] > items_max:
                connection.shutdown(socket.SHUT_RDWR)
                count += 1
    return count


def _duplicate(descriptor: int) -> socket.socket:
    """Return a socket of the same connection, whose descriptor nobody else closes."""
    duplicate = os.dup(descriptor)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _is_at(connection: socket.socket, port: int) -> bool:
    is_internet = connection.family in {socket.AF_INET, socket.AF_INET6}
    return is_internet and connection.getsockname()[1] == port
