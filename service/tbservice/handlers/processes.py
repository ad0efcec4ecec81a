"""The worker's side of handler processes: the program they are forked from, and one of them at work."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

from tbservice import errors, limits
from tbservice.errors import ServiceError, TooLarge, Unavailable
from tbservice.handlers.fork_server import FORK, KILL, MESSAGE

Calls = Mapping[str, Callable[..., Any]]
"""What a job may ask of the worker, by name; called in the thread that waits for the job."""

_MESSAGE_BYTES_MAX: Final = 2**31 - 1

# Not among them: every setting and secret of the service.
_ENVIRONMENT: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
)

_PROCESS_DIED: Final = "the process that worked on this ended before its time; try again"


class HandlerFailed(Exception):
    """A job raised an error that is no answer to the client; the message is the end of its traceback."""


class ForkServer:
    """The program that processes are forked from, started when first needed and again when it has died."""

    def __init__(self, modules: tuple[str, ...]) -> None:
        """`modules` have `JOBS`: functions by name, which are what the processes can do."""
        self._modules = modules
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program unless it runs; returns at once, while it imports."""
        with self._lock:
            self._start()

    def fork(self) -> HandlerProcess:
        """Return a new process. Raises Unavailable when none can be made."""
        with self._lock:
            for _ in range(2):  # it may have died since it was last asked
                with contextlib.suppress(OSError):
                    return self._fork(self._start())
                self._end()
            raise Unavailable("no process can be started to work on this; try again")

    def kill(self, process_id: int) -> None:
        """End a process of `fork`'s; its connection is then closed at the other end. Never waits."""
        with contextlib.suppress(OSError):  # the program has died, and its processes with it
            control = self._control
            if control is not None:
                control.sendall(MESSAGE.pack(KILL, process_id))

    def _start(self) -> socket.socket:
        if self._control is None:
            atexit.unregister(self._end)
            atexit.register(self._end)
            self._control, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-P", "-m", "tbservice.handlers.fork_server"),
                        *(
                            str(theirs.fileno()),
                            str(limits.HANDLER_MEMORY_BYTES_MAX),
                            *self._modules,
                        ),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=[theirs.fileno()],
                )
        return self._control

    def _fork(self, control: socket.socket) -> HandlerProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(control, [MESSAGE.pack(FORK, 0)], [theirs.fileno()])
        answer = control.recv(MESSAGE.size, socket.MSG_WAITALL)
        if len(answer) < MESSAGE.size:
            ours.close()
            raise OSError(_PROCESS_DIED)
        return HandlerProcess(self, MESSAGE.unpack(answer)[1], Connection(ours.detach()))

    def _end(self) -> None:
        """Close the control socket, at which the program ends, if it has not ended already."""
        if self._control is not None and self._process is not None:
            self._control.close()
            self._control = None
            self._process.wait()


class HandlerProcess:
    """A process that does one job at a time."""

    def __init__(self, server: ForkServer, process_id: int, connection: Connection) -> None:
        """Use `ForkServer.fork`."""
        self.process_id = process_id
        self.is_reusable = True
        self._server = server
        self._connection = connection

    def kill(self) -> None:
        """End the process, from any thread; a `run` under way then raises Unavailable."""
        self.is_reusable = False
        self._server.kill(self.process_id)

    def run(self, job: str, arguments: tuple[Any, ...], calls: Calls) -> Any:
        """Return what the job returns. Raises what a call raised; the job's ServiceError; TooLarge for its memory.

        Raises Unavailable when the process dies; HandlerFailed for any other error of the job's.
        """
        try:
            self._connection.send_bytes(pickle.dumps((job, arguments)))
            outcome, failure = self._exchange(calls)
        except (OSError, EOFError) as error:
            self.kill()
            raise Unavailable(_PROCESS_DIED) from error
        except BaseException:  # what it sent is no message
            self.kill()
            raise
        *outcome, is_reusable = outcome
        if not is_reusable:
            self.kill()
        return _result(outcome, failure)

    def _exchange(self, calls: Calls) -> tuple[list[Any], BaseException | None]:
        """Answer the job's calls until its outcome comes; also what a call raised."""
        failure: BaseException | None = None
        while True:
            message = _load(self._connection.recv_bytes(_MESSAGE_BYTES_MAX))
            if message[0] == "log":
                logging.getLogger(message[1]).log(message[2], "%s", message[3])
            elif message[0] == "call":
                try:
                    answer = (True, calls[message[1]](*message[2]))
                except Exception as error:  # noqa: BLE001 - raised again when the process is ready for another job
                    answer, failure = (False, None), error
                self._connection.send_bytes(pickle.dumps(answer, protocol=5))
            else:
                return list(message), failure


@functools.cache
def get_fork_server(modules: tuple[str, ...]) -> ForkServer:
    """The one server of these modules in this process: it holds nothing of any application's."""
    return ForkServer(modules)


class _RestrictedUnpickler(pickle.Unpickler):
    """Makes plain values and those of `tbservice.types` alone: what comes from a handler process is not trusted."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "tbservice.types" and name in {
            "Selection",
            "Sampling",
            "SamplingRule",
            "StepRange",
            "DataClass",
        }:
            return super().find_class(module, name)
        if (module, name) == ("builtins", "frozenset"):
            return frozenset
        raise pickle.UnpicklingError(f"a handler process may send no {module}.{name}")


def _load(message: bytes) -> tuple[Any, ...]:
    value = _RestrictedUnpickler(io.BytesIO(message)).load()
    assert isinstance(value, tuple)  # noqa: S101 - that is what processes send
    return value


def _result(outcome: list[Any], failure: BaseException | None) -> Any:
    if failure is not None:
        raise failure
    if outcome[0] == "done":
        return outcome[1]
    if outcome[0] == "refused":
        kind = getattr(errors, outcome[1], None)
        if isinstance(kind, type) and issubclass(kind, ServiceError):
            raise kind(outcome[2])
    if outcome[0] == "memory":
        most = f"{limits.HANDLER_MEMORY_BYTES_MAX} bytes (handler_memory_bytes_max)"
        raise TooLarge(f"to show this takes more than {most} of memory")
    raise HandlerFailed(str(outcome[1:]))


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return kept | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OPENBLAS_NUM_THREADS": "1",
    }
