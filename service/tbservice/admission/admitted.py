"""The request that the running task or thread works for: its caller, shares and turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio.from_thread
from starlette.concurrency import run_in_threadpool

from tbservice.admission.fair_queue import FairQueue
from tbservice.admission.shares import Caller
from tbservice.admission.turns import Turn
from tbservice.admission.worker_shares import WorkerShares
from tbservice.waits import count_in, waiting


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that was admitted: its caller, the shares of the worker, and its turn."""

    caller: Caller
    shares: WorkerShares
    turn: Turn


_current: Final[ContextVar[AdmittedRequest]] = ContextVar("tbhub_admitted")


def admit(caller: Caller, shares: WorkerShares) -> AdmittedRequest:
    """Return a request of the caller, without a turn yet, and make it the current one.

    It is current in the running task, and in the tasks and threads that this starts.
    """
    admitted = AdmittedRequest(caller, shares, Turn(shares.turns, caller))
    _current.set(admitted)
    loop = None
    with suppress(RuntimeError):  # outside of one, nobody waits for a turn
        loop = asyncio.get_running_loop()
    count_in(
        shares.turns.waits,
        caller.key,
        partial(_let_others_go, admitted, loop, admitted.turn.give_way),
        partial(_let_others_go, admitted, loop, admitted.turn.pause),
    )
    return admitted


def _let_others_go(
    admitted: AdmittedRequest,
    loop: asyncio.AbstractEventLoop | None,
    how: Callable[[], Coroutine[None, None, None]],
) -> None:
    if loop is not None and admitted.shares.turns.has_waiting:
        asyncio.run_coroutine_threadsafe(how(), loop).result()


def current() -> AdmittedRequest:
    """Return the current request of this task or thread. Raises LookupError outside requests."""
    return _current.get()


@asynccontextmanager
async def turn() -> AsyncIterator[None]:
    """Hold a turn of the caller during the block: for work after the response has started.

    The request's own turn is released first: two requests that each hold one turn and wait for a
    second would deadlock. Raises TooManyRequests.
    """
    admitted = current()
    admitted.turn.release()
    async with admitted.shares.turns.turn(admitted.caller):
        yield


@contextmanager
def wait_in_thread(queue: FairQueue, amount: int) -> Iterator[None]:
    """Hold `amount` of a queue during the block, in a thread of the event loop's pool.

    Raises TooManyRequests.
    """
    caller = current().caller
    with waiting():
        anyio.from_thread.run(queue.wait, caller, amount)
    try:
        yield
    finally:
        anyio.from_thread.run_sync(queue.release, caller, amount)


async def iterate_in_turns(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks, each produced in a thread during a turn of the caller."""
    end: Final = object()
    while True:
        async with turn():
            chunk = await run_in_threadpool(next, chunks, end)
        if not isinstance(chunk, bytes):
            return
        yield chunk
