"""The pool of handler processes of one application: assignment, timeout and cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, ParamSpec, TypeVar

from tbservice import traces
from tbservice.admission import admitted
from tbservice.admission.fair_queue import FairQueue
from tbservice.errors import TooLarge, Unavailable
from tbservice.handlers.processes import Calls, HandlerProcess, get_fork_server
from tbservice.waits import waiting

HANDLER_ITEMS_MAX: Final = 4
"""Items of work (requests) that run at once in TensorBoard's handler processes of one worker."""

HANDLER_SHARE_ITEMS_MAX: Final = 2
"""Items of these for the requests of one account."""

HANDLER_SECONDS_MAX: Final = 30
"""Seconds after which the handler process of a request is killed."""

_log = logging.getLogger(__name__)

_THREADS: Final = 8
"""Threads for short work; each needs a database connection while it reads."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class HandlerPool:
    """Processes for work on untrusted data, and threads for our own work on pages."""

    def __init__(self, *modules: str) -> None:
        """Start nothing yet; the processes run the `JOBS` of `modules`, functions by name."""
        self._server = get_fork_server(modules)
        self._threads = _ThreadPool(_THREADS, "page")
        self._waiters = _ThreadPool(HANDLER_ITEMS_MAX, "handler")
        self._slots = FairQueue("handler processes", HANDLER_ITEMS_MAX, HANDLER_SHARE_ITEMS_MAX)
        self._lock = threading.Lock()
        self._idle: list[HandlerProcess] = []
        self._working: set[_RunningJob] = set()
        self._is_closed = False
        self._is_warm = threading.Event()

    @property
    def is_warm(self) -> bool:
        """Return whether `warm` has ended: a job need not wait for imports."""
        return self._is_warm.is_set()

    def start(self) -> None:
        """Start the fork server and return before it is ready."""
        self._server.start()

    def warm(self) -> None:
        """Start the fork server and a first process in a thread; return before they are ready."""
        self._waiters.submit(self._warm)

    def _warm(self) -> None:
        running = _RunningJob()
        try:
            self._release_process(running, self._acquire_process(running))
        except Unavailable as error:  # the next job tries again
            _log.warning("no handler process could be started: %s", error.detail)
        finally:
            self._is_warm.set()

    def close(self) -> None:
        """Kill every process and refuse further work; calls in threads run to their end."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            working = list(self._working)

        for process in idle:
            process.kill()
        for running in working:
            running.kill()
        self._threads.close()
        self._waiters.close()

    async def in_thread(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> _Result:
        """Call the function in a thread; a call cancelled before a thread is free is not made."""
        return await asyncio.wrap_future(self._threads.submit(function, *args, **kwargs))

    async def in_process(
        self, job: str, *arguments: Any, calls: Calls, cancel: Callable[[], object]
    ) -> Any:
        """Run a job in a process, within the limits named `handler_…`, and return its result.

        Args:
            job: Name of the job in `JOBS` of the modules.
            *arguments: Arguments of the job after its link; they are pickled.
            calls: Functions of the worker that the job may call, by name.
            cancel: Ends a call in progress when the job is killed; called in another thread.

        Raises:
            TooLarge: It took too long or too much memory; the process was killed.
            TooManyRequests: The caller's share of the processes was in use for too long.
            Unavailable: The process died, or the service is stopping.
            HandlerFailed: The job failed with an error that is not for the client.
        """
        caller = admitted.current().caller
        with waiting():
            await self._slots.wait(caller)
        running = _RunningJob()
        future = self._waiters.submit(self._run_job, running, job, arguments, calls)
        loop = asyncio.get_running_loop()

        def release(_future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._slots.release, caller)

        # Not when the client disconnects: the thread may still be working then.
        future.add_done_callback(release)
        try:
            async with asyncio.timeout(HANDLER_SECONDS_MAX):
                with traces.span("handler process"):
                    return await asyncio.wrap_future(future)
        except TimeoutError as error:
            raise TooLarge(
                "the work on this request takes too long: "
                f"the limit is {HANDLER_SECONDS_MAX} seconds (handler_seconds_max)"
            ) from error
        finally:
            if not future.done():
                running.kill()
                # In a thread, because cancelling a PostgreSQL statement would block the event loop.
                threading.Thread(target=cancel, name="cancel", daemon=True).start()

    def _run_job(
        self, running: _RunningJob, job: str, arguments: tuple[Any, ...], calls: Calls
    ) -> Any:
        process = self._acquire_process(running)
        try:
            running.begin(process)
            return process.run(job, arguments, calls)
        finally:
            self._release_process(running, process)

    def _acquire_process(self, running: _RunningJob) -> HandlerProcess:
        with self._lock:
            if self._is_closed:
                raise Unavailable("the service is stopping; try again")
            self._working.add(running)
            if self._idle:
                return self._idle.pop()
        return self._server.fork()

    def _release_process(self, running: _RunningJob, process: HandlerProcess) -> None:
        with self._lock:
            self._working.discard(running)
            if not self._is_closed and running.end() and process.is_reusable:
                self._idle.append(process)
                return
        process.kill()


class _RunningJob:
    """One job, which any thread may kill, even before it has a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: HandlerProcess | None = None
        self._is_stopped = False

    def begin(self, process: HandlerProcess) -> None:
        """Assign the process. Raises Unavailable if the job was killed already."""
        with self._lock:
            if self._is_stopped:
                raise Unavailable("the request was cancelled")
            self._process = process

    def end(self) -> bool:
        """Detach the process; return False if it was killed."""
        with self._lock:
            self._process = None
            return not self._is_stopped

    def kill(self) -> None:
        """Kill the job's process now, or refuse the one that is assigned later. Does not block."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()


class _ThreadPool:
    """A fixed number of daemon threads, started at the first call.

    Python waits at exit for the threads of `concurrent.futures`, and not for these.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._is_started = False

    def submit(
        self,
        function: Callable[_Parameters, _Result],
        *args: _Parameters.args,
        **kwargs: _Parameters.kwargs,
    ) -> Future[_Result]:
        """Call the function in a thread, with the context variables of the current thread.

        If the future is cancelled before a thread is free, the function is not called.
        """
        self._start()
        future: Future[_Result] = Future()
        context = contextvars.copy_context()
        self._calls.put((future, lambda: context.run(function, *args, **kwargs)))
        return future

    def close(self) -> None:
        """Stop the threads after the calls that were submitted. Returns at once."""
        with self._lock:
            for _ in range(self._count if self._is_started else 0):
                self._calls.put(None)
            self._is_started = False

    def _start(self) -> None:
        with self._lock:
            if not self._is_started:
                self._is_started = True
                for number in range(self._count):
                    threading.Thread(
                        target=self._work, name=f"{self._name}-{number}", daemon=True
                    ).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    result = function()
                except BaseException as error:  # noqa: BLE001 - raised where the future is awaited
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del call, future, function
