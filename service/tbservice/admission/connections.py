"""The connections of a worker: how many, and how long one may wait without a request under way.

Uvicorn's own protocol sets a limit on neither. When there are too many connections, the one is closed that has waited
longest among those without a request, of the address that has most of them: an attacker closes its own.
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
        _idle.add(self)
        self._set_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request: of one that begins, the headers must be complete in time."""
        super().data_received(data)
        if not self.is_idle:
            _idle.remove(self)
            self._unset_header_timer()
        elif self._header_timer is None:
            self._set_header_timer()

    def on_response_complete(self) -> None:
        """Expect the next request, or that the client closes."""
        super().on_response_complete()
        if self.is_idle and not self.transport.is_closing():
            _idle.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        _idle.forget(self)
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


class _Idle:
    """The connections of this process: how many there are, and which of them have no request under way."""

    def __init__(self) -> None:
        self._open: set[Connection] = set()
        self._by_address: dict[str, OrderedDict[Connection, None]] = {}

    def add(self, connection: Connection) -> None:
        """Note that no request of the connection is under way; close another where there are too many."""
        self._open.add(connection)
        self._by_address.setdefault(connection.address, OrderedDict())[connection] = None
        if len(self._open) > connections_max():
            most = max(self._by_address.values(), key=len)
            longest = next(iter(most))
            self.forget(longest)
            longest.transport.abort()

    def remove(self, connection: Connection) -> None:
        """Note that a request of the connection is under way."""
        waiting = self._by_address.get(connection.address, OrderedDict())
        waiting.pop(connection, None)
        if not waiting:
            self._by_address.pop(connection.address, None)

    def forget(self, connection: Connection) -> None:
        """Note that the connection is closed."""
        self._open.discard(connection)
        self.remove(connection)


_idle: Final = _Idle()


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
