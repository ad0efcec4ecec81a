"""Answers that are made while they are sent: how many at once, and what happens to clients that are slow or go away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tbservice.admission import admitted
from tbservice.admission.admitted import Admitted


def stream(make: Callable[[], Iterator[bytes]], headers: Mapping[str, str], media_type: str) -> StreamingResponse:
    """The answer with these pieces, each of which is made in a thread when the client has taken those before.

    The first is made at once, so that what is wrong before it is an error with a status. What goes wrong afterwards
    ends the connection without HTTP's last chunk, which every client takes for an error. Raises TooManyRequests when
    the caller is being sent its share of streams.
    """
    current = admitted.current()
    current.shares.streams.take(current.caller)
    try:
        pieces = make()
        first = next(pieces, b"")
    except BaseException:
        current.shares.streams.give_back(current.caller)
        raise
    return _Streamed(current, pieces, first, headers, media_type)


class _Streamed(StreamingResponse):
    """Counts as one of the caller's streams until it is sent, or has failed."""

    def __init__(
        self, current: Admitted, pieces: Iterator[bytes], first: bytes, headers: Mapping[str, str], media_type: str
    ) -> None:
        content = admitted.iterate_in_turns(chain([first], pieces))
        super().__init__(content, headers=headers, media_type=media_type)
        self._current = current
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._current.shares.streams.give_back(self._current.caller)
            close = getattr(self._pieces, "close", None)
            if close is not None:  # the generator may hold a connection, in the middle of a read
                await run_in_threadpool(close)
