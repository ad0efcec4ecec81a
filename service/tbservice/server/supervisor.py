"""The parent of several worker processes: it forks them, and replaces those that end or hang."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import signal
import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final
from weakref import WeakSet

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess, multiprocess
from uvicorn.supervisors.multiprocess import SIGNALS, Process

from tbservice.api.http.metrics_exposition import has_metrics_room, release_metrics_space
from tbservice.server.signals import EXIT_SECONDS_MAX

WORKER_HEALTHCHECK_SECONDS_MAX = 30
"""Seconds after which a worker that has started and does not respond to its parent is replaced."""

WORKER_START_SECONDS_MAX = 300
"""Seconds after which one that has not started is replaced: a busy machine or disk takes long."""

WORKER_STOP_SECONDS_MAX = EXIT_SECONDS_MAX + 0.5
"""Seconds from the stop signal after which a worker that did not even force its exit is killed."""

WORKER_EXIT_SECONDS_MAX = 1
"""Seconds to wait for the exit code of a worker that has closed its connection."""

_FORK: Final = multiprocessing.get_context("fork")

_parent_ends: WeakSet[Connection[Any, Any]] = WeakSet()
"""The parent's ends of the connections to all workers, which a worker forked later inherits."""

_log = logging.getLogger(__name__)


class Worker(Process):
    """A worker process, forked: it has at once what its parent took two seconds to import."""

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        """Start nothing yet. The parent must have no other thread, and no connection."""
        super().__init__(config, sockets)
        # uvicorn would spawn it.
        self.process = _FORK.Process(target=self._run, args=[sockets])  # type: ignore[assignment] # see above
        _parent_ends.add(self.parent_conn)
        self.has_started = False
        self.asked_at: float | None = None
        """When it was sent the ping that it owes an answer, in seconds of `time.monotonic`."""

    def start(self) -> None:
        """Fork it. Signals wait until it has forgotten what its parent does at them."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # The worker's end: open here too, it would hide that the worker has died.
        self.child_conn.close()

    def _run(self, sockets: list[socket.socket]) -> None:
        """Serve, in the forked process."""
        for parent_end in _parent_ends:  # open here too, they would hide that the parent has died
            parent_end.close()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        with suppress(KeyboardInterrupt):  # the parent expects it to end
            self.target(sockets)

    def always_pong(self) -> None:
        """Answer the parent, in a thread, until it closes the connection or ends."""
        with suppress(OSError, EOFError):
            super().always_pong()

    def find_problem(self) -> str:
        """Return why it must be replaced, or "".

        Does not wait for an answer, as uvicorn does: until then no stop signal would be handled.
        """
        if not self.process.is_alive():
            return self._tell_end()
        try:
            if self.parent_conn.poll():
                self.has_started = self.parent_conn.recv()
                self.asked_at = None
            if self.asked_at is None:
                self.parent_conn.send(b"ping")
                self.asked_at = time.monotonic()
        except (OSError, EOFError):
            # One that ends closes what it has open a moment before its exit code can be read.
            self.process.join(WORKER_EXIT_SECONDS_MAX)
            return "has closed its connection" if self.process.is_alive() else self._tell_end()
        limit = WORKER_HEALTHCHECK_SECONDS_MAX if self.has_started else WORKER_START_SECONDS_MAX
        if time.monotonic() - self.asked_at < limit:
            return ""
        return f"did not {'answer' if self.has_started else 'start'} within {limit} s"

    def _tell_end(self) -> str:
        return f"has ended with exit code {self.exitcode}"


multiprocess.Process = Worker  # type: ignore[misc] # uvicorn has no setting for it


class Supervisor(Multiprocess):
    """Uvicorn's parent of the workers, which stops in time whatever the workers do."""

    processes: list[Worker]  # type: ignore[assignment] # see above

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        """Start nothing yet; `has_given_up` will say whether a failed worker made it stop."""
        super().__init__(config, sockets)
        self.has_given_up = False
        self._lacks_room = False

    def run(self) -> None:
        """Fork the workers and look after them until a signal."""
        # A collection would write to what workers share with this process, and so copy it.
        gc.collect()
        gc.freeze()
        gc.enable()  # `tbservice` starts without
        super().run()

    def keep_subprocess_alive(self) -> None:
        """Replace dead workers; give up if one does not start, as the next would not either."""
        if self.should_exit.is_set():
            return
        started = 0
        for index, worker in enumerate(self.processes):
            problem = worker.find_problem()
            if not problem:
                continue
            is_news = not worker.parent_conn.closed  # while there is no room, it is seen again
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                self.has_given_up = True
                self.should_exit.set()
                return
            if is_news:
                _log.warning("worker %s %s: it is replaced", worker.pid, problem)
            if worker.pid is not None:
                release_metrics_space(worker.pid)
            if self._has_room(started + 1):
                self.processes[index] = replacement = Worker(self.config, self.sockets)
                replacement.start()
                started += 1

    def _has_room(self, workers: int) -> bool:
        """Return whether so many workers have room for their metrics; log it when that changes.

        One without would be killed by its first write to them. The others go on meanwhile.
        """
        lacks_room = not has_metrics_room(workers)
        if lacks_room and not self._lacks_room:
            _log.error("no worker can be started: the disk of the metrics is full; make room there")
        self._lacks_room = lacks_room
        return not lacks_room

    def join_all(self) -> None:
        """Wait until all workers have ended; kill those that take WORKER_STOP_SECONDS_MAX."""
        deadline = time.monotonic() + WORKER_STOP_SECONDS_MAX
        for worker in self.processes:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                _log.warning("worker %s did not stop and was killed", worker.pid)
                worker.kill()
                worker.join()
