"""The program that handler processes are forked from: it has imported what they need, and holds no secret.

Arguments: the descriptor of the control socket, the bytes a handler process may add to its own, and the modules whose
`JOBS` (functions by name) the processes do. It ends when the other end of the control socket is closed, that is when
the worker that started it ends, however it does. A message on the control socket is an operation and a process id:
FORK comes with a socket for the new process and is answered with its id; KILL ends a process and reaps it. Nobody else
reaps, so that an id is never that of another process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tbservice.handlers.job_loop import Job, run_jobs
from tbservice.launch import set_parent_death_signal

MESSAGE: Final = struct.Struct("=cI")
"""An operation and a process id."""

FORK: Final = b"F"
KILL: Final = b"K"

_NICENESS: Final = 5
"""Added to the niceness of handler processes: uploads and the API come first where they contend for the processor."""


def main() -> None:
    """Fork and kill as the control socket says, until it is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # sent to a whole group: requests under way have the stop time still
    jobs: dict[str, Job] = {}
    for module in sys.argv[3:]:
        jobs |= importlib.import_module(module).JOBS
    gc.collect()
    gc.freeze()  # a collection would write to, and so copy, the pages that all processes share

    while message := _receive(control):
        operation, process_id, descriptor = message
        if operation == KILL:
            _kill(process_id)
        else:
            process_id = _fork(control, descriptor, int(sys.argv[2]), jobs)
            with contextlib.suppress(
                ConnectionError
            ):  # the worker has ended meanwhile: `_receive` tells it
                control.sendall(MESSAGE.pack(FORK, process_id))


def _receive(control: socket.socket) -> tuple[bytes, int, int] | None:
    message, descriptors, _, _ = socket.recv_fds(control, MESSAGE.size, 1, socket.MSG_WAITALL)
    if len(message) < MESSAGE.size:
        return None
    return *MESSAGE.unpack(message), descriptors[0] if descriptors else -1


def _kill(process_id: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(process_id, signal.SIGKILL)
        os.waitpid(process_id, 0)


def _fork(
    control: socket.socket, descriptor: int, memory_bytes_max: int, jobs: Mapping[str, Job]
) -> int:
    server = os.getpid()
    process_id = os.fork()
    if process_id:
        os.close(descriptor)
        return process_id
    try:
        control.close()
        set_parent_death_signal(signal.SIGKILL, server)
        os.nice(_NICENESS)
        _limit_memory(memory_bytes_max)
        run_jobs(Connection(descriptor), jobs)
    finally:
        os._exit(0)  # never back into the loop of the parent


def _limit_memory(bytes_max: int) -> None:
    """Bound the address space to what it is now and `bytes_max` more, and leave no core file of a tenant's data."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + bytes_max
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
