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

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tbservice import limits
from tbservice.admission.answers import ABORT_KEY, OUTGOING_KEY, Outgoing
from tbservice.admission.callers import customer_of

_OTHER_FILES: Final = 200
"""Files that a worker opens beside its clients' connections: to PostgreSQL, to S3, spooled bodies."""

_RECEIVED_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes that are taken from a connection at a time, and parsed before others get their turn."""

_PARSED_BYTES_MAX: Final = 4 * limits.KIB
"""Bytes that are parsed at once while it is not known what they are: they may be the head of a body in tiny chunks."""

_LINE_BYTES_MIN: Final = 32
"""Bytes of a line, on average, of headers and of a body in chunks: each chunk is two lines."""

_LACKING_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes that the lines of one request may lack of that: to parse a thousand tiny chunks takes some 10 ms."""

_OPEN_FILES_WANTED: Final = limits.CONNECTIONS_ITEMS_MAX + _OTHER_FILES


class Connection(H11Protocol):
    """One client's connection, with a time for headers and a place in the worker's count."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self._header_timer: asyncio.TimerHandle | None = None
        self._unparsed = b""
        self._lacking_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        """Count the connection, and expect a request soon."""
        super().connection_made(transport)
        self.address = customer_of(self.client[0]) if self.client else ""
        transport.set_write_buffer_limits(
            0
        )  # what is sent waits until what was sent before is taken
        self.app = _with_connection(self.app, transport, Outgoing(transport, self.flow))
        transport.max_size = _RECEIVED_BYTES_MAX  # type: ignore[attr-defined] # of asyncio's own transports
        _connections.add(self)
        self._set_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request: of one that begins, the headers must be complete in time."""
        _connections.note_bytes(self)
        self._unparsed += data
        self._parse()

    def _parse(self) -> None:
        """Parse what was received, a few bytes at a time until they are known to be a body's."""
        while self._unparsed and not self.transport.is_closing():
            if (
                self.conn.their_state is h11.DONE and not self.is_idle
            ):  # a next request, before the answer to this one
                self.flow.pause_reading()
                return
            is_body, has_lines = self.conn.their_state is h11.SEND_BODY, not self._is_plain_body()
            size = len(self._unparsed) if is_body else _PARSED_BYTES_MAX
            data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            if has_lines and self._lacks_bytes(data):
                self.transport.abort()
                return
            super().data_received(data)
            if (
                not has_lines
                and self.conn.their_state is h11.DONE
                and self._lacks_bytes(self.conn.trailing_data[0])
            ):
                self.transport.abort()
            self._expect_headers()

    def _expect_headers(self) -> None:
        if not self.is_idle:
            self._unset_header_timer()
        elif self._header_timer is None:
            self._set_header_timer()

    @property
    def importance(self) -> int:
        """How much is lost when the connection is closed: 0 nothing, 1 a body on its way, 2 work or an answer."""
        if self.is_idle:
            return 0
        return 1 if self.cycle.more_body and not self.cycle.response_started else 2

    def _is_plain_body(self) -> bool:
        """Return whether a body of an announced size comes next: its bytes are not parsed."""
        is_body = self.conn.their_state is h11.SEND_BODY
        return is_body and not any(name == b"transfer-encoding" for name, _ in self.headers)

    def _lacks_bytes(self, data: bytes) -> bool:
        """Count what the lines of these bytes lack of `_LINE_BYTES_MIN`; return whether it is too much.

        To parse many small headers, or tiny chunks, would keep the event loop busy.
        """
        wanted = data.count(b"\r\n") * _LINE_BYTES_MIN
        self._lacking_bytes = max(0, self._lacking_bytes + wanted - len(data))
        return self._lacking_bytes > _LACKING_BYTES_MAX

    def on_response_complete(self) -> None:
        """Expect the next request, or that the client closes."""
        self._lacking_bytes = 0
        super().on_response_complete()
        if self.is_idle:
            _connections.note_bytes(self)
        self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        _connections.forget(self)
        self._unset_header_timer()
        super().connection_lost(exc)
        if self.cycle is not None:
            self.cycle.body = (
                bytearray()
            )  # an error's traceback may hold the request until garbage is collected

    def _set_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(
            limits.REQUEST_HEADER_SECONDS_MAX, self._end_headers
        )

    def _unset_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_headers(self) -> None:
        self._header_timer = None
        if self.is_idle:
            self.transport.abort()


def _with_connection(application: Any, transport: asyncio.Transport, outgoing: Outgoing) -> Any:
    """Return the application with what answers need of the connection; it must not hold the connection itself.

    A request that the stop of the server cuts off ends its connection. Uvicorn would answer 500 and log a traceback;
    it has logged how many there are.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        scope[ABORT_KEY] = transport.abort
        scope[OUTGOING_KEY] = outgoing
        try:
            await application(scope, receive, send)
        except asyncio.CancelledError:
            if not _is_cancelled():
                raise
            transport.abort()
            with contextlib.suppress(
                asyncio.CancelledError
            ):  # the loop's own end cancels once more
                await asyncio.sleep(
                    0
                )  # until `connection_lost` was called: uvicorn then misses no answer

    return run


def _is_cancelled() -> bool:
    """Return whether the running task itself is to end; else what it awaited was cancelled, which is an error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _ConnectionRegistry:
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
            idle = next(
                (one for one in most if one.is_idle), None
            )  # most often soon: not all are looked at
            closed = idle or min(most, key=lambda one: one.importance)  # of equals the first
            self.forget(closed)
            closed.transport.abort()

    def note_bytes(self, connection: Connection) -> None:
        """Have the connection wait from now on: a request has ended, or some of one has come."""
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


_connections: Final = _ConnectionRegistry()


def connections_max() -> int:
    """Return how many connections a worker holds open: `CONNECTIONS_ITEMS_MAX`, or as many as it may open files."""
    return min(
        limits.CONNECTIONS_ITEMS_MAX,
        max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _OTHER_FILES),
    )


def raise_file_limit() -> None:
    """Raise the process's limit of open files to what all connections take, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(_OPEN_FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # a sandbox that lets nobody set limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
