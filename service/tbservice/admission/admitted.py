"""What code below the middleware knows of the request it works for: its caller, and the worker's shares."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import anyio.from_thread
from starlette.concurrency import run_in_threadpool

from tbservice.admission.callers import Caller
from tbservice.admission.shares import FairQueue, WorkerShares


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was let in: who makes it, and what it shares with others."""

    caller: Caller
    shares: WorkerShares


_current: Final[ContextVar[Admitted]] = ContextVar("tbhub_admitted")


def current() -> Admitted:
    """Return the request that this task or thread works for. Raises LookupError outside of requests."""
    return _current.get()


def set_current(admitted: Admitted) -> None:
    """Set it for the running task, and for all threads and tasks that it starts."""
    _current.set(admitted)


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Hold a turn of the caller's while the block lasts: for work after an answer has begun, which gave its own back.

    Raises TooManyRequests.
    """
    admitted = current()
    async with admitted.shares.turns.turn(admitted.caller):
        yield


@contextmanager
def wait_in_thread(queue: FairQueue, amount: int) -> Iterator[None]:
    """Hold `amount` of a queue while the block lasts, in a thread of the event loop's pool. Raises TooManyRequests."""
    caller = current().caller
    anyio.from_thread.run(queue.wait, caller, amount)
    try:
        yield
    finally:
        anyio.from_thread.run_sync(queue.give_back, caller, amount)


async def iterate_in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Give the pieces, each made in a thread during a turn of the caller's."""
    end: Final = object()
    while True:
        async with turn():
            piece = await run_in_threadpool(next, pieces, end)
        if not isinstance(piece, bytes):
            return
        yield piece
