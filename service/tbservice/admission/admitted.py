"""What code below the middleware knows of the request it works for: its caller, and the worker's shares."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import anyio.from_thread
from starlette.concurrency import run_in_threadpool

from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller
from tbservice.admission.turns import Turn
from tbservice.admission.worker_shares import WorkerShares


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that was let in: who makes it, what it shares with others, and its turn."""

    caller: Caller
    shares: WorkerShares
    turn: Turn


_current: Final[ContextVar[AdmittedRequest]] = ContextVar("tbhub_admitted")


def admit(caller: Caller, shares: WorkerShares) -> AdmittedRequest:
    """Return a request of the caller's, without a turn yet; the running task and what it starts work for it."""
    admitted = AdmittedRequest(caller, shares, Turn(shares.turns, caller))
    _current.set(admitted)
    return admitted


def current() -> AdmittedRequest:
    """Return the request that this task or thread works for. Raises LookupError outside of requests."""
    return _current.get()


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Hold a turn of the caller's while the block lasts: for work that goes on beside, or behind, the request's own.

    The request's own turn ends before: two requests that each held one and waited for another would wait for ever.
    Raises TooManyRequests.
    """
    admitted = current()
    admitted.turn.release()
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
        anyio.from_thread.run_sync(queue.release, caller, amount)


async def iterate_in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Give the pieces, each made in a thread during a turn of the caller's."""
    end: Final = object()
    while True:
        async with turn():
            piece = await run_in_threadpool(next, pieces, end)
        if not isinstance(piece, bytes):
            return
        yield piece
