"""Answers that are made while they are sent: how many at once, and what happens to clients that are slow or go away."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tbservice import limits
from tbservice.errors import Unavailable

_log = logging.getLogger(__name__)

_slots: Final = threading.BoundedSemaphore(limits.whole_streams_max)


def stream(make: Callable[[], Iterator[bytes]], headers: Mapping[str, str], media_type: str) -> StreamingResponse:
    """The answer with these pieces, each of which is made in a thread when the client has taken those before.

    The first is made at once, so that what is wrong before it is an error with a status. What goes wrong afterwards
    ends the connection without HTTP's last chunk, which every client takes for an error. Raises Unavailable when
    `whole_streams_max` are being sent.
    """
    if not _slots.acquire(blocking=False):
        limit = f"{limits.whole_streams_max} streams at full resolution at once (whole_streams_max)"
        raise Unavailable(f"this server sends {limit}; try again later", code="busy")
    try:
        pieces = make()
        first = next(pieces, b"")
    except BaseException:
        _slots.release()
        raise
    return _Streamed(pieces, first, headers, media_type)


class _Stalled(Exception):
    """The client takes nothing; never leaves this module."""


class _Streamed(StreamingResponse):
    """Holds one of the slots until it is sent, or has failed."""

    def __init__(self, pieces: Iterator[bytes], first: bytes, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(chain([first], pieces), headers=headers, media_type=media_type)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it. A client that takes nothing for `whole_stall_seconds_max` is left."""

        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(limits.whole_stall_seconds_max):
                    await send(message)
            except TimeoutError as error:
                raise _Stalled from error

        try:
            await super().__call__(scope, receive, send_in_time)
        except _Stalled:  # the server, uvicorn, closes the connection of an answer that has not ended
            _log.warning("a client took nothing of a stream for %s seconds", limits.whole_stall_seconds_max)
        finally:
            _slots.release()
            close = getattr(self._pieces, "close", None)
            if close is not None:  # the generator may hold a connection, in the middle of a read
                await run_in_threadpool(close)
