"""A service with a gRPC port that restarts, gracefully or by SIGKILL, and clients that repeat calls."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack

import grpc
import psutil

from support.grpc_calls import live_grpc_service
from support.katib_client import Katib
from tbservice.local.embedded.ports import LOOPBACK

REPEAT_SECONDS_MAX = 60
REPEATED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,  # by a server that stops
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


class PatientKatib(Katib):
    """A `Katib` that repeats calls, the same bytes, while the service is away.

    It opens a connection for each call, so that any worker may answer it.
    """

    def __init__(self, port, token):
        super().__init__(None, token)
        self._port = port
        self.repeated = 0
        """Calls without an answer, which the server may have carried out or not."""

    def call(self, method, request, **options):
        deadline = time.monotonic() + REPEAT_SECONDS_MAX
        while True:
            local = [("grpc.use_local_subchannel_pool", 1)]
            with grpc.insecure_channel(f"{LOOPBACK}:{self._port}", local) as self._channel:
                try:
                    return super().call(method, request, **options)
                except grpc.RpcError as error:
                    if error.code() not in REPEATED or time.monotonic() > deadline:
                        raise
            self.repeated += 1
            time.sleep(0.1)


class RestartingService:
    """A `tbservice serve` whose gRPC port stays the same; a context."""

    def __init__(self, settings, directory, workers=1):
        self._settings, self._directory, self._workers = settings, directory, workers
        self._running = ExitStack()
        self.live = self.port = None
        self.starts = 0

    def __enter__(self):
        self._start()
        return self

    def __exit__(self, *error):
        self._running.close()

    def restart(self):
        """Let it finish its calls and end, and start it again."""
        self._running.close()
        self._start()

    def kill(self):
        """Kill all its processes, and start it again."""
        processes = [psutil.Process(self.live.process.pid)]
        processes += processes[0].children(recursive=True)
        for process in processes:
            process.kill()
        self.live.process.wait()
        psutil.wait_procs(processes[1:], timeout=10)
        self._running.close()
        self._start()

    def _start(self):
        more = {"TBHUB_WORKERS": str(self._workers)}
        if self.port:
            more["TBHUB_GRPC_PORT"] = str(self.port)
        started = live_grpc_service(self._settings, self._directory, **more)
        self.live, port = self._running.enter_context(started)
        self.port = self.port or port
        self.starts += 1
        (self._directory / "log").rename(self._directory / f"log-{self.starts}")


class SweepsWithRestarts:
    """Runs sweeps at the same time, while the service restarts.

    At each of the numbers of trials `at`, every sweep waits for the others, and the service
    restarts: by SIGKILL while they call, and gracefully between their calls.
    """

    def __init__(self, service, at):
        self._service, self._at = service, at
        self._kinds = itertools.cycle((self._kill_soon, service.restart))
        self._late = None

    def run(self, controllers):
        """Run the sweeps, each in a thread; return their losses."""
        self._barrier = threading.Barrier(len(controllers), self._restart)
        with ThreadPoolExecutor(len(controllers)) as threads:
            running = [threads.submit(self._run, controller) for controller in controllers]
            wait(running)
        self._end_late()
        broken = [each for each in running if each.exception()]
        # Those that waited for a broken sweep say less than itself.
        broken.sort(key=lambda each: isinstance(each.exception(), threading.BrokenBarrierError))
        for each in broken:
            raise each.exception()
        return [each.result() for each in running]

    def _run(self, controller):
        marks = iter(self._at)
        following = next(marks, None)

        def meet():
            nonlocal following
            while following is not None and len(controller.items) >= following:
                self._barrier.wait()
                following = next(marks, None)

        controller.between = meet
        try:
            return controller.run()
        except BaseException:
            self._barrier.abort()
            raise

    def _restart(self):
        self._end_late()
        next(self._kinds)()

    def _kill_soon(self):
        self._late = threading.Timer(0.3, self._service.kill)
        self._late.start()

    def _end_late(self):
        if self._late:
            self._late.join()
