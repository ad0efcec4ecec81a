"""Responses that are generated while they are sent, within limits per caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tbservice import limits
from tbservice.admission import admitted
from tbservice.admission.answers import COUNTED_KEY
from tbservice.errors import TooManyRequests


def stream_response(
    make: Callable[[], Iterator[bytes]],
    headers: Mapping[str, str],
    media_type: str,
    held_bytes: int = limits.SCAN_CHUNK_BYTES,
) -> StreamingResponse:
    """Return a response of the byte chunks that the iterator of `make` yields.

    The first chunk is generated in this call, so that errors up to there have a status. Each other
    chunk is generated in a worker thread when the client has received those before. A later error
    closes the connection without HTTP's last chunk (RFC 9112, section 7.1), which clients report.

    Args:
        make: Returns the iterator; it is closed at the end of the response.
        headers: Headers of the response.
        media_type: Content type of the response.
        held_bytes: Memory that the iterator uses until its end, in bytes.

    Raises:
        TooManyRequests: The caller is at its limit of concurrent streams, or of their memory.
    """
    reservation = _StreamReservation(held_bytes)
    try:
        byte_chunks = make()
        first = next(byte_chunks, b"")
    except BaseException:
        reservation.release()
        raise
    return _ReservedStream(reservation, byte_chunks, first, headers, media_type)


def refuse_unread(size: int) -> None:
    """Raise TooManyRequests if the caller's unread responses leave no room for one more.

    Callers of this spare themselves the encoding of a response that cannot be sent anyway:
    `admission/answers.py` checks its true size again.

    Args:
        size: What the response takes at least, in bytes.
    """
    current = admitted.current()
    unread = current.shares.unread_bytes
    if not unread.has_room(current.caller, size):
        raise unread.over_share_error(current.caller)


class _StreamReservation:
    """Reservation of one of the caller's streams and its memory; releases both at once."""

    def __init__(self, held_bytes: int) -> None:
        """Reserve both, or raise TooManyRequests."""
        self._current = admitted.current()
        self._held_bytes = held_bytes
        caller, shares = self._current.caller, self._current.shares
        shares.streams.acquire(caller)
        try:
            shares.unread_bytes.acquire(caller, held_bytes)
        except TooManyRequests:
            shares.streams.release(caller)
            raise

    def release(self) -> None:
        """Release both."""
        self._current.shares.streams.release(self._current.caller)
        self._current.shares.unread_bytes.release(self._current.caller, self._held_bytes)


class _ReservedStream(StreamingResponse):
    """Streaming response that releases its reservation when it ends or fails."""

    def __init__(
        self,
        reservation: _StreamReservation,
        byte_chunks: Iterator[bytes],
        first: bytes,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        content = admitted.iterate_in_turns(chain([first], byte_chunks))
        super().__init__(content, headers=headers, media_type=media_type)
        self._reservation = reservation
        self._byte_chunks = byte_chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        scope[COUNTED_KEY] = True
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reservation.release()
            # A generator may be suspended in a read, with a connection, which `close` returns.
            close = getattr(self._byte_chunks, "close", None)
            if close is not None:
                await run_in_threadpool(close)
