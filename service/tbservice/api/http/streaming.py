"""Answers that are made while they are sent: how many at once, and what happens to clients that are slow or go away."""

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
    """The answer with these pieces, each of which is made in a thread when the client has taken those before.

    The first is made at once, so that what is wrong before it is an error with a status. What goes wrong afterwards
    ends the connection without HTTP's last chunk, which every client takes for an error. `held_bytes` is what is in
    memory from the first piece to the last. Raises TooManyRequests when the caller is being sent its share of streams,
    or of bytes.
    """
    reservation = _StreamReservation(held_bytes)
    try:
        pieces = make()
        first = next(pieces, b"")
    except BaseException:
        reservation.release()
        raise
    return _ReservedStream(reservation, pieces, first, headers, media_type)


class _StreamReservation:
    """One of the caller's streams, and the memory it takes."""

    def __init__(self, held_bytes: int) -> None:
        """Raises TooManyRequests."""
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
        """Give both back."""
        self._current.shares.streams.release(self._current.caller)
        self._current.shares.unread_bytes.release(self._current.caller, self._held_bytes)


class _ReservedStream(StreamingResponse):
    """Counts as one of the caller's streams until it is sent, or has failed."""

    def __init__(
        self,
        reservation: _StreamReservation,
        pieces: Iterator[bytes],
        first: bytes,
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        content = admitted.iterate_in_turns(chain([first], pieces))
        super().__init__(content, headers=headers, media_type=media_type)
        self._reservation = reservation
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        scope[COUNTED_KEY] = True
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reservation.release()
            close = getattr(self._pieces, "close", None)
            if close is not None:  # the generator may hold a connection, in the middle of a read
                await run_in_threadpool(close)
