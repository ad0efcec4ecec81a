"""The connections of a worker: how many, and how long one may wait without a request under way.

Uvicorn's own protocol sets a limit on neither. When there are too many connections, one of the address that has most of
them is closed: the one that has waited longest without a request, else for a body. An attacker closes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import OrderedDict
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tbservice import limits
from tbservice.admission.answers import ABORT_KEY

_OTHER_FILES: Final = 200
"""Files that a worker opens beside its clients' connections: to PostgreSQL, to S3, spooled bodies."""

_RECEIVED_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes that are taken from a connection at a time, and parsed before others get their turn."""

_CHUNKS_CHECKED_BYTES_MIN: Final = 4 * limits.KIB
_CHUNK_BYTES_MIN: Final = 64
"""Bytes of a chunk, on average, of a body in chunks."""

_FILES_WANTED: Final = limits.connections_items_max + _OTHER_FILES


class Connection(H11Protocol):
    """One client's connection, with a time for headers and a place in the worker's count."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_timer: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    @property
    def address(self) -> str:
        """The client's address; empty where there is none."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Count the connection, and expect a request soon."""
        super().connection_made(transport)
        self.app = _abortable(self.app, transport)
        transport.max_size = _RECEIVED_BYTES_MAX  # type: ignore[attr-defined] # of asyncio's own transports
        _connections.add(self)
        self._set_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request: of one that begins, the headers must be complete in time."""
        super().data_received(data)
        if not self.is_idle:
            self._unset_header_timer()
            if self._has_tiny_chunks(data):
                self.transport.abort()
        elif self._header_timer is None:
            self._set_header_timer()

    @property
    def importance(self) -> int:
        """How much is lost when the connection is closed: 0 nothing, 1 a body on its way, 2 work or an answer."""
        if self.is_idle:
            return 0
        return 1 if self.cycle.more_body and not self.cycle.response_started else 2

    def _has_tiny_chunks(self, data: bytes) -> bool:
        """Return whether a body comes in so small chunks that to parse it would keep the event loop busy."""
        if len(data) < _CHUNKS_CHECKED_BYTES_MIN or data.count(b"\r\n") * _CHUNK_BYTES_MIN < 2 * len(data):
            return False
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def on_response_complete(self) -> None:
        """Expect the next request, or that the client closes."""
        super().on_response_complete()
        if self.is_idle:
            _connections.note_end_of_request(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        _connections.forget(self)
        self._unset_header_timer()
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.body = bytearray()  # an error's traceback may hold the request until garbage is collected

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; one whose client still takes the last answer's bytes gets longer."""
        unsent = self.transport.get_write_buffer_size()
        if unsent and unsent != self._unsent_bytes:
            self._unsent_bytes = unsent
            delay = limits.answer_stall_seconds_max
            self.timeout_keep_alive_task = self.loop.call_later(delay, self.timeout_keep_alive_handler)
        elif unsent:
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def _set_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(limits.header_seconds_max, self._end_headers)

    def _unset_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_headers(self) -> None:
        self._header_timer = None
        if self.is_idle:
            self.transport.abort()


def _abortable(application: Any, transport: asyncio.Transport) -> Any:
    """Return the application with a way to close the connection at once; it must not hold the connection itself."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        scope[ABORT_KEY] = transport.abort
        await application(scope, receive, send)

    return run


class _Connections:
    """The open connections of this process, by address; those that have waited longest come first."""

    def __init__(self) -> None:
        self._count = 0
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}

    def add(self, connection: Connection) -> None:
        """Count a new connection; close another where there are too many."""
        self._count += 1
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        if self._count > connections_max():
            most = max(self._by_address.values(), key=len)
            closed = min(most, key=lambda one: one.importance)  # of equals the first
            self.forget(closed)
            closed.transport.abort()

    def note_end_of_request(self, connection: Connection) -> None:
        """Have the connection wait from now on."""
        connections = self._by_address.get(connection.address)
        if connections and connection in connections:
            connections.move_to_end(connection)

    def forget(self, connection: Connection) -> None:
        """Count a connection no more; again, it changes nothing."""
        connections = self._by_address.get(connection.address, OrderedDict())
        if connection in connections:
            del connections[connection]
            self._count -= 1
            if not connections:
                del self._by_address[connection.address]


_connections: Final = _Connections()


def connections_max() -> int:
    """Return how many connections a worker holds open: `connections_items_max`, or as many as it may open files."""
    return min(limits.connections_items_max, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES))


def raise_file_limit() -> None:
    """Raise the process's limit of open files to what all connections take, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # a sandbox that lets nobody set limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
