"""Limits on a worker's connections: their number, and how long one may wait for a request.

Uvicorn's own protocol limits neither. When there are too many connections, one of the address with
the most connections is closed: the one that has been idle longest, or else the one that has waited
longest for a body. An attacker thus closes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections import OrderedDict
from itertools import islice
from typing import Any, Final

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tbservice import limits
from tbservice.admission.answers import ABORT_KEY, OUTGOING_KEY, Outgoing
from tbservice.admission.callers import site_of
from tbservice.admission.listener import WAITING_CONNECTIONS_ITEMS_MAX, waiting_connections_max
from tbservice.admission.pacing import PEER_KEY
from tbservice.admission.refusals import LEFT_KEY

REFUSED_CONNECTION_SECONDS: Final = 2.0
"""Seconds for which a connection stays open after bytes that were not a request, to be read."""

_OTHER_FILES: Final = 200
"""Files that a worker opens besides client connections: for PostgreSQL, S3 and spooled bodies."""

_EXAMINED_ITEMS_MAX: Final = 64
"""Connections (items) of an address, quiet for longest, of which one is chosen to be closed."""

_RECEIVED_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes read from a connection at a time, and parsed before other connections are served."""

_PARSED_BYTES_MAX: Final = 4 * limits.KIB
"""Bytes parsed at once outside of a body: they may be headers followed by tiny chunks."""

_BYTES_PER_LINE_MIN: Final = 32
"""Average bytes per line of headers and of chunked bodies, in which each chunk is two lines."""

_SHORTFALL_BYTES_MAX: Final = 64 * limits.KIB
"""Bytes by which the lines of one request may fall short: 1,000 tiny chunks parse in 10 ms."""

_OPEN_FILES_MIN: Final = (
    limits.CONNECTIONS_ITEMS_MAX
    + limits.GRPC_CONNECTIONS_ITEMS_MAX
    + WAITING_CONNECTIONS_ITEMS_MAX
    + _OTHER_FILES
)


class Connection(H11Protocol):
    """One client's connection, with a timeout for headers, counted in the worker's registry."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self._header_timer: asyncio.TimerHandle | None = None
        self._unparsed = b""
        self._shortfall_bytes = 0
        self._is_refused = False
        self._has_left = asyncio.Event()

    @property
    def is_idle(self) -> bool:
        """Return whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn
        """Register the connection and start the timeout for headers."""
        super().connection_made(transport)
        self.address = site_of(self.client[0]) if self.client else ""
        # A send waits until the previous bytes were accepted by the operating system.
        # https://docs.python.org/3/library/asyncio-protocol.html#asyncio.WriteTransport.set_write_buffer_limits
        transport.set_write_buffer_limits(0)
        connection = {
            ABORT_KEY: transport.abort,
            OUTGOING_KEY: Outgoing(transport, self.flow),
            LEFT_KEY: self._has_left,
            PEER_KEY: self.client,
        }
        self.app = _with_connection(self.app, transport, connection)
        # asyncio reads 256 KiB at a time, and has no setting for it.
        transport.max_size = _RECEIVED_BYTES_MAX  # type: ignore[attr-defined] # asyncio's
        _connections.add(self)
        self._set_header_timer()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; headers must be complete within `REQUEST_HEADER_SECONDS_MAX`."""
        if self._is_refused:
            return
        _connections.note_bytes(self)
        self._unparsed += data
        self._parse()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a request, and close the connection a little later.

        Closing with bytes unread would reset the connection, and the client would lose the
        response (RFC 9112, section 9.6): what it still sends is discarded for
        `REFUSED_CONNECTION_SECONDS`.
        """
        self._is_refused = True
        self._unparsed = b""
        reason, headers = b"Bad Request", [(b"content-type", b"text/plain; charset=utf-8")]
        headers.append((b"connection", b"close"))
        response = h11.Response(status_code=400, headers=headers, reason=reason)
        for event in (response, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        # Not over TLS:
        # https://docs.python.org/3/library/asyncio-protocol.html#asyncio.WriteTransport.can_write_eof
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # `abort` and not `close`: there is nothing left to flush.
        self.loop.call_later(REFUSED_CONNECTION_SECONDS, self.transport.abort)

    def _parse(self) -> None:
        """Parse the received bytes, in small parts until the parser is in a body."""
        while self._unparsed and not self.transport.is_closing():
            # h11 parses no second request before the first is answered ("keep-alive and pipelining"
            # in https://h11.readthedocs.io/en/latest/api.html).
            if self.conn.their_state is h11.DONE and not self.is_idle:
                # A pipelined request: `on_response_complete` parses it.
                self.flow.pause_reading()
                return

            is_body, has_lines = self.conn.their_state is h11.SEND_BODY, not self._is_plain_body()
            size = len(self._unparsed) if is_body else _PARSED_BYTES_MAX
            data, self._unparsed = self._unparsed[:size], self._unparsed[size:]
            if has_lines and self._has_short_lines(data):
                self.transport.abort()
                return

            super().data_received(data)
            if (
                not has_lines
                and self.conn.their_state is h11.DONE
                and self._has_short_lines(self.conn.trailing_data[0])
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
        """Return the loss if it is closed: 0 nothing, 1 an arriving body, 2 work or a response."""
        if self.is_idle:
            return 0
        return 1 if self.cycle.more_body and not self.cycle.response_started else 2

    def _is_plain_body(self) -> bool:
        """Return whether a body with a `Content-Length` comes next: it is not parsed in lines."""
        is_body = self.conn.their_state is h11.SEND_BODY
        # With both headers, the transfer coding counts: RFC 9112, section 6.3.
        return is_body and not any(name == b"transfer-encoding" for name, _ in self.headers)

    def _has_short_lines(self, data: bytes) -> bool:
        """Return whether the request's lines are too short, after counting those of `data`.

        Parsing many small headers or tiny chunks would block the event loop.
        """
        bytes_min = data.count(b"\r\n") * _BYTES_PER_LINE_MIN
        self._shortfall_bytes = max(0, self._shortfall_bytes + bytes_min - len(data))
        return self._shortfall_bytes > _SHORTFALL_BYTES_MAX

    def on_response_complete(self) -> None:
        """Wait for the next request, and parse it if it was pipelined."""
        self._shortfall_bytes = 0
        super().on_response_complete()
        if self.is_idle:
            _connections.note_bytes(self)
        self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the registry and free the request's body."""
        _connections.forget(self)
        self._has_left.set()
        self._unset_header_timer()
        super().connection_lost(exc)
        if self.cycle is not None:
            # An error's traceback may reference the request until a late garbage collection.
            self.cycle.body = bytearray()

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


def _with_connection(
    application: Any, transport: asyncio.Transport, connection: dict[str, Any]
) -> Any:
    """Return the application with what `connection` says in its scope.

    It must not reference the connection itself, which would keep it alive.

    When the server's stop cancels a request, its connection is aborted. Uvicorn would respond 500
    and log a traceback, after it has already logged how many requests it cancelled.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        scope.update(connection)
        try:
            await application(scope, receive, send)
        except asyncio.CancelledError:
            if not _is_cancelled():
                raise
            transport.abort()
            # One iteration of the loop calls `connection_lost`: uvicorn then misses no response.
            # The end of the loop may cancel this task again.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    return run


def _is_cancelled() -> bool:
    """Return whether the running task was cancelled, and not something that it awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _ConnectionRegistry:
    """The open connections of this process by address, ordered by their last received bytes."""

    def __init__(self) -> None:
        self._count = 0
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}

    def add(self, connection: Connection) -> None:
        """Register a new connection; close another one if there are too many."""
        self._count += 1
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        if self._count > connections_max():
            most = max(self._by_address.values(), key=len)
            # The first one of the least loss, of few: a flood makes thousands, without an idle one.
            oldest = islice(most, _EXAMINED_ITEMS_MAX)
            victim = min(oldest, key=lambda candidate: candidate.importance)
            self.forget(victim)
            victim.transport.abort()

    def note_bytes(self, connection: Connection) -> None:
        """Move the connection to the end of its address: it received bytes or ended a request."""
        connections = self._by_address.get(connection.address)
        if connections and connection in connections:
            connections.move_to_end(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a connection. Idempotent."""
        connections = self._by_address.get(connection.address, OrderedDict())
        if connection in connections:
            del connections[connection]
            self._count -= 1
            if not connections:
                del self._by_address[connection.address]


_connections: Final = _ConnectionRegistry()


def connections_max() -> int:
    """Return how many connections a worker keeps open, within its limit of open files."""
    others = _OTHER_FILES + waiting_connections_max()
    return min(
        limits.CONNECTIONS_ITEMS_MAX,
        max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - others),
    )


def raise_file_limit() -> None:
    """Raise the limit of open files to what all connections need, up to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OPEN_FILES_MIN if hard == resource.RLIM_INFINITY else min(_OPEN_FILES_MIN, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        with contextlib.suppress(ValueError, OSError):  # some sandboxes forbid setting limits
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
