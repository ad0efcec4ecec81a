"""Responses that are generated while they are sent, within limits per caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tbservice import limits
from tbservice.admission import admitted
from tbservice.admission.answers import COUNTED_KEY
from tbservice.errors import TooManyRequests, Unavailable


def stream_response(
    make: Callable[[], Iterator[bytes]],
    headers: Mapping[str, str],
    media_type: str,
    loaded_bytes: int = 0,
    show_refusal: Callable[[TooManyRequests | Unavailable], Response] | None = None,
) -> StreamingResponse:
    """Return a response of the byte chunks that the iterator of `make` yields.

    It waits in a queue, in the event loop, while the caller has its share of streams. The first
    chunk is generated before the response starts, so that errors up to there have a status. Each
    other chunk is generated in a worker thread when the client has received those before. A later
    error closes the connection without HTTP's last chunk (RFC 9112, section 7.1), which clients
    report.

    Args:
        make: Returns the iterator; it is closed at the end of the response.
        headers: Headers of the response.
        media_type: Content type of the response.
        loaded_bytes: Memory of what the iterator encodes, in bytes, if it is loaded already. Else
            `SCAN_CHUNK_BYTES` are reserved when the stream begins.
        show_refusal: Makes the response to such an error, where it is not the API's JSON.

    Raises:
        TooManyRequests: The caller is at its limit of such memory. So does the response, also
            after too long a wait.
    """
    return _QueuedStream(make, headers, media_type, loaded_bytes, show_refusal)


def refuse_unread(size: int) -> None:
    """Raise TooManyRequests if the caller's unread responses leave no room for one more.

    Callers of this spare themselves the encoding of a response that cannot be sent anyway:
    `admission/answers.py` checks its true size again. Events of a tail that has begun are counted
    there, but not refused: one change may send an event to all tails of a caller at once.

    Args:
        size: Minimum size of the response, or of the event, in bytes.
    """
    current = admitted.current()
    unread = current.shares.unread_bytes
    if not unread.has_room(current.caller, size):
        raise unread.over_share_error(current.caller)


class _QueuedStream(StreamingResponse):
    """Streaming response that waits for one of its caller's streams, and reserves its memory."""

    def __init__(
        self,
        make: Callable[[], Iterator[bytes]],
        headers: Mapping[str, str],
        media_type: str,
        loaded_bytes: int,
        show_refusal: Callable[[TooManyRequests | Unavailable], Response] | None,
    ) -> None:
        # Replaced in `_stream`: the iterator must not be made before the stream's turn.
        super().__init__(iter(()), headers=headers, media_type=media_type)
        self._show_refusal = show_refusal
        self._has_begun = False
        self._current = admitted.current()
        self._make = make
        self._held_bytes = 0
        self._reserve_memory(loaded_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        # A request that waits holds no turn: the one that has the stream needs turns.
        self._current.turn.release()
        try:
            async with self._current.shares.streams.turn(self._current.caller):
                if not self._held_bytes:
                    self._reserve_memory(limits.SCAN_CHUNK_BYTES)
                await self._stream(scope, receive, send)
        except (TooManyRequests, Unavailable) as error:
            if self._show_refusal is None or self._has_begun:
                raise
            await self._show_refusal(error)(scope, receive, send)
        finally:
            unread = self._current.shares.unread_bytes
            unread.release(self._current.caller, self._held_bytes)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with admitted.turn():
            byte_chunks, first = await run_in_threadpool(self._begin)
        self._has_begun = scope[COUNTED_KEY] = True
        self.body_iterator = admitted.iterate_in_turns(chain([first], byte_chunks))
        try:
            await super().__call__(scope, receive, send)
        finally:
            # A generator may be suspended in a read, with a connection, which `close` returns.
            close = getattr(byte_chunks, "close", None)
            if close is not None:
                await run_in_threadpool(close)

    def _begin(self) -> tuple[Iterator[bytes], bytes]:
        """Return the iterator and its first chunk."""
        byte_chunks = self._make()
        # An iterator without chunks is a response without a body.
        return byte_chunks, next(byte_chunks, b"")

    def _reserve_memory(self, size: int) -> None:
        """Reserve memory of unread responses. Raises TooManyRequests."""
        self._current.shares.unread_bytes.acquire(self._current.caller, size)
        self._held_bytes = size
