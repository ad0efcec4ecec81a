"""The worker's side of handler processes: the fork server, and each of its processes."""

from __future__ import annotations

import atexit
import contextlib
import enum
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
from tbservice.handlers.fork_server import CLONE, FORK, KILL, MESSAGE
from tbservice.types.sampling import Sampling, SamplingRule, Selection, StepRange
from tbservice.waits import waiting
from tbwire.points import DataClass

HANDLER_MEMORY_BYTES_MAX: Final = 512 * limits.MIB
"""Bytes of memory that a handler process may allocate beyond those it starts with."""

Calls = Mapping[str, Callable[..., Any]]
"""Functions that a job may call in the worker; they run in the thread that waits for the job."""

_MESSAGE_BYTES_MAX: Final = 2**31 - 1

# An allow list, so that no setting or secret of the service is passed on.
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

_PROCESS_DIED: Final = "the process that worked on this request died; try again"


class HandlerFailed(Exception):
    """A job raised an error that is not for the client; the message ends with its traceback."""


class ForkServer:
    """The program that processes are forked from; started on first use, restarted if it died.

    A process that was forked after the start has a clone of the program.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        """Start nothing yet; the processes run the `JOBS` of `modules`, functions by name."""
        self._modules = modules
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._user = 0  # the id of the process that has the control socket

    def start(self) -> None:
        """Start the program if it does not run; return while it still imports modules."""
        with self._lock:
            self._start()

    def fork(self) -> HandlerProcess:
        """Return a new process. Raises Unavailable if none can be started."""
        with self._lock:
            for _ in range(2):  # the program may have died since the last fork
                with contextlib.suppress(OSError):
                    return self._fork(self._start())
                self._end()
            raise Unavailable("no process can be started for this request; try again")

    def kill(self, process_id: int) -> None:
        """Kill a process of `fork`, which closes its end of the connection. Does not block."""
        with contextlib.suppress(OSError):  # the program has died, and so have its processes
            control = self._control
            if control is not None:
                control.sendall(MESSAGE.pack(KILL, process_id))

    def _start(self) -> socket.socket:
        if self._control is not None and self._user != os.getpid():
            self._control = _clone(self._control)
            self._process = None
            self._user = os.getpid()
        if self._control is None:
            self._user = os.getpid()
            atexit.unregister(self._end)
            atexit.register(self._end)
            self._control, theirs = socket.socketpair()
            # -P: no module of the working directory is imported:
            # https://docs.python.org/3/using/cmdline.html#cmdoption-P
            command = [sys.executable, "-P", "-m", "tbservice.handlers.fork_server"]
            memory = str(HANDLER_MEMORY_BYTES_MAX)
            with theirs:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno()), memory, *self._modules],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    # All others are closed: connections to PostgreSQL and clients must not be
                    # inherited.
                    pass_fds=[theirs.fileno()],
                )
        return self._control

    def _fork(self, control: socket.socket) -> HandlerProcess:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(ours.close)
            with theirs:
                # The child's end is passed, not inherited: the program is older than the socket.
                socket.send_fds(control, [MESSAGE.pack(FORK, 0)], [theirs.fileno()])
            reply = control.recv(MESSAGE.size, socket.MSG_WAITALL)
            if len(reply) < MESSAGE.size:
                raise OSError(_PROCESS_DIED)
            if_it_fails.pop_all()
        return HandlerProcess(self, MESSAGE.unpack(reply)[1], Connection(ours.detach()))

    def _end(self) -> None:
        """End the program and reap it; its processes end with it.

        It is killed, because it may still be importing modules for seconds.
        """
        if self._control is not None and self._user == os.getpid():
            self._control.close()
            self._control = None
            if self._process is not None:
                self._process.kill()
                self._process.wait()


def _clone(control: socket.socket) -> socket.socket | None:
    """Return the control socket of a clone of this socket's program; None if that has died."""
    ours, theirs = socket.socketpair()
    with control, theirs:
        try:
            socket.send_fds(control, [MESSAGE.pack(CLONE, 0)], [theirs.fileno()])
        except OSError:
            ours.close()
            return None
    return ours


class HandlerProcess:
    """A process that runs one job at a time."""

    def __init__(self, server: ForkServer, process_id: int, connection: Connection) -> None:
        """Use `ForkServer.fork`."""
        self.process_id = process_id
        self.is_reusable = True
        self._server = server
        self._connection = connection

    def kill(self) -> None:
        """Kill the process, from any thread; a `run` in progress then raises Unavailable."""
        self.is_reusable = False
        self._server.kill(self.process_id)

    def run(self, job: str, arguments: tuple[Any, ...], calls: Calls) -> Any:
        """Run the job and return its result.

        Args:
            job: Name of the job in `JOBS` of the modules.
            arguments: Arguments of the job after its link; they are pickled.
            calls: Functions of the worker that the job may call, by name.

        Raises:
            Exception: An error that one of the calls raised.
            ServiceError: An error that the job raised.
            TooLarge: The job needed too much memory.
            Unavailable: The process died.
            HandlerFailed: The job raised any other error.
        """
        try:
            self._connection.send_bytes(pickle.dumps((job, arguments)))
            outcome, failure = self._exchange(calls)
        except (OSError, EOFError) as error:
            self.kill()
            raise Unavailable(_PROCESS_DIED) from error
        except BaseException:  # such as a message that cannot be unpickled
            self.kill()
            raise

        *outcome, is_reusable = outcome
        if not is_reusable:
            self.kill()
        return _result(outcome, failure)

    def _exchange(self, calls: Calls) -> tuple[list[Any], BaseException | None]:
        """Serve the job's calls until its outcome arrives; return it, and the error of a call."""
        failure: BaseException | None = None
        while True:
            with waiting():
                received = self._connection.recv_bytes(_MESSAGE_BYTES_MAX)
            message = _load(received)
            if message[0] == "log":
                logging.getLogger(message[1]).log(message[2], "%s", message[3])
            elif message[0] == "call":
                try:
                    reply = (True, calls[message[1]](*message[2]))
                except Exception as error:  # noqa: BLE001 - raised again when the job has ended
                    reply, failure = (False, None), error
                self._connection.send_bytes(pickle.dumps(reply, protocol=5))
            else:
                return list(message), failure


@functools.cache
def get_fork_server(modules: tuple[str, ...]) -> ForkServer:
    """Return the fork server of these modules, shared by all applications of this process."""
    return ForkServer(modules)


_ARGUMENT_TYPES: Final = {
    ("builtins", "frozenset"): frozenset,
    ("tbservice.types.sampling", "Selection"): Selection,
    ("tbservice.types.sampling", "Sampling"): Sampling,
    ("tbservice.types.sampling", "SamplingRule"): SamplingRule,
    ("tbservice.types.sampling", "StepRange"): StepRange,
    ("tbwire.points", "DataClass"): DataClass,
}
"""The types, by module and name, of the arguments of calls from a handler process."""


class _RestrictedUnpickler(pickle.Unpickler):
    """Unpickler of plain values and `_ARGUMENT_TYPES`: handler processes are not trusted."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARGUMENT_TYPES:
            return _ARGUMENT_TYPES[module, name]
        if (module, name) == ("builtins", "getattr"):
            return _find_member
        # https://docs.python.org/3/library/pickle.html#restricting-globals
        raise pickle.UnpicklingError(f"a handler process must not send {module}.{name}")


def _find_member(kind: type, name: str) -> enum.Enum:
    """Return the member of that name: up to Python 3.11.3, a pickled one is a call of `getattr`.

    https://github.com/python/cpython/blob/v3.11.3/Lib/enum.py, `Enum.__reduce_ex__`. Raises
    UnpicklingError for any other attribute.
    """
    if kind not in _ARGUMENT_TYPES.values() or not issubclass(kind, enum.Enum):
        raise pickle.UnpicklingError(f"a handler process must not ask for {name} of {kind!r}")
    return kind[name]


def _load(message: bytes) -> tuple[Any, ...]:
    value = _RestrictedUnpickler(io.BytesIO(message)).load()
    assert isinstance(value, tuple)  # noqa: S101 - the type of every message
    return value


def _result(outcome: list[Any], failure: BaseException | None) -> Any:
    if failure is not None:
        raise failure
    if outcome[0] == "done":
        return outcome[1]
    if outcome[0] == "refused":
        kind = getattr(errors, outcome[1], None)
        # Not any class of that name: what a handler process sends is not trusted.
        if isinstance(kind, type) and issubclass(kind, ServiceError):
            raise kind(outcome[2])
    if outcome[0] == "memory":
        limit = f"{HANDLER_MEMORY_BYTES_MAX} bytes (handler_memory_bytes_max)"
        raise TooLarge(f"the work on this request takes too much memory: the limit is {limit}")
    raise HandlerFailed(str(outcome[1:]))


def _environment() -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return inherited | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        # Threads of OpenBLAS reserve memory each, which counts against the limit of the process.
        "OPENBLAS_NUM_THREADS": "1",
    }
