"""The handler processes of one application: who gets one, for how long, and what ends their work."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar

from tbservice import limits
from tbservice.admission import admitted
from tbservice.admission.fair_queue import FairQueue
from tbservice.errors import TooLarge, Unavailable
from tbservice.handlers.processes import Calls, HandlerProcess, get_fork_server
from tbservice.handlers.threads import DaemonThreadPool

_THREADS: Final = 8
"""Threads for short work beside the processes; each needs a database connection while it reads."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class HandlerPool:
    """Processes for work on untrusted data, and threads for the work of pages that is our own."""

    def __init__(self, *modules: str) -> None:
        """`modules` have `JOBS`, functions by name; the processes import them, and not this one."""
        self._server = get_fork_server(modules)
        self._threads = DaemonThreadPool(_THREADS, "page")
        self._waiters = DaemonThreadPool(limits.HANDLER_ITEMS_MAX, "handler")
        self._slots = FairQueue(
            "handler processes", limits.HANDLER_ITEMS_MAX, limits.HANDLER_SHARE_ITEMS_MAX
        )
        self._lock = threading.Lock()
        self._idle: list[HandlerProcess] = []
        self._working: set[_RunningJob] = set()
        self._is_closed = False

    def start(self) -> None:
        """Have the first process ready soon; returns at once."""
        self._server.start()

    def close(self) -> None:
        """Kill every process and refuse all further work; calls under way in the worker end by themselves."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            working = list(self._working)
        for process in idle:
            process.kill()
        for work in working:
            work.kill()
        self._threads.close()
        self._waiters.close()

    async def in_thread(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Return what the function returns, called in a thread; a cancelled call that waits for one is never made."""
        return await asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))

    async def in_process(
        self, job: str, *arguments: Any, calls: Calls, cancel: Callable[[], object]
    ) -> Any:
        """Return what a job of the modules' returns, done in a process within the limits named `handler_…`.

        Args:
            job: Its name in `JOBS`.
            arguments: The job's, behind its link; anything that can be pickled.
            calls: What the job may ask of the worker, by name.
            cancel: Ends a call under way, from any thread, when the work is stopped.

        Raises:
            TooLarge: It took too long or too much memory; the process was killed.
            TooManyRequests: The caller's share of the processes was in use for too long.
            Unavailable: The process died, or the service stops.
            HandlerFailed: The job failed in a way that is no answer to the client.
        """
        caller = admitted.current().caller
        await self._slots.wait(caller)
        work = _RunningJob()
        future = self._waiters.submit(self._run_job, work, job, arguments, calls)
        loop = asyncio.get_running_loop()

        def release(_future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._slots.release, caller)

        future.add_done_callback(
            release
        )  # not when the client leaves: the thread may still be at work
        try:
            async with asyncio.timeout(limits.HANDLER_SECONDS_MAX):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise TooLarge(
                f"to show this takes longer than {limits.HANDLER_SECONDS_MAX} seconds (handler_seconds_max)"
            ) from error
        finally:
            if not future.done():
                work.kill()
                # Not here: asking PostgreSQL to end a statement would hold up the event loop.
                threading.Thread(target=cancel, name="cancel", daemon=True).start()

    def _run_job(
        self, work: _RunningJob, job: str, arguments: tuple[Any, ...], calls: Calls
    ) -> Any:
        process = self._acquire_process(work)
        try:
            work.begin(process)
            return process.run(job, arguments, calls)
        finally:
            self._release_process(work, process)

    def _acquire_process(self, work: _RunningJob) -> HandlerProcess:
        with self._lock:
            if self._is_closed:
                raise Unavailable("the service is stopping; try again")
            self._working.add(work)
            if self._idle:
                return self._idle.pop()
        return self._server.fork()

    def _release_process(self, work: _RunningJob, process: HandlerProcess) -> None:
        with self._lock:
            self._working.discard(work)
            if not self._is_closed and work.end() and process.is_reusable:
                self._idle.append(process)
                return
        process.kill()


class _RunningJob:
    """One job, which can be stopped from any thread, before it has a process too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: HandlerProcess | None = None
        self._is_stopped = False

    def begin(self, process: HandlerProcess) -> None:
        """Note the process that does it. Raises Unavailable when it is stopped already."""
        with self._lock:
            if self._is_stopped:
                raise Unavailable("nobody waits for this any more")
            self._process = process

    def end(self) -> bool:
        """Leave the process to others; false when it was stopped, and the process killed."""
        with self._lock:
            self._process = None
            return not self._is_stopped

    def kill(self) -> None:
        """Kill the process, or the one that would begin with it; never waits."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()
