"""The program that handler processes are forked from: it imports their modules, has no secret.

Arguments: the descriptor of the control socket, the bytes a handler process may allocate beyond its
size after the fork, and the modules with `JOBS`, functions by name. The program exits when the
other end of the control socket is closed, so when its worker exits for any reason.

A message on the control socket is an operation and a process id. FORK comes with a socket for the
new process, and its reply has the id. KILL ends a process and reaps it; nothing else reaps, so that
an id is never reused by another process before. CLONE comes with a control socket for a fork of
this program: each worker has one, so that the modules are imported once for all workers.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tbservice.handlers.job_loop import Job, run_jobs
from tbservice.launch import set_parent_death_signal

MESSAGE: Final = struct.Struct("=cI")
"""A message: an operation and a process id."""

FORK: Final = b"F"
KILL: Final = b"K"
CLONE: Final = b"C"

_NICENESS: Final = 5
"""Niceness added to handler processes, so that uploads and the API get the processor first."""

_LANDLOCK_CREATE_RULESET: Final = 444
_LANDLOCK_RESTRICT_SELF: Final = 446
_LANDLOCK_MACHINES: Final = frozenset({"x86_64", "aarch64"})
"""Architectures of Linux with these numbers of system calls."""

_LANDLOCK_MAKE_SYM: Final = 1 << 12
_PR_SET_NO_NEW_PRIVS: Final = 38

_WATCH_MILLISECONDS: Final = 100
"""Milliseconds between two looks at whether the modules are loaded, which takes seconds."""


def main() -> None:
    """Execute the messages of the control socket until it is closed."""
    control = socket.socket(fileno=int(sys.argv[1]))
    # A terminal sends these to the process group; requests in progress still have `STOP_SECONDS`.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    gc.disable()  # imports make a million objects that stay
    is_loaded = threading.Event()
    watch = threading.Thread(target=_exit_at_end, args=[control, is_loaded])
    watch.start()
    jobs: dict[str, Job] = {}
    for module in sys.argv[3:]:
        jobs |= importlib.import_module(module).JOBS
    gc.collect()
    gc.freeze()  # a collection would write to the shared pages, and so copy them
    gc.enable()
    is_loaded.set()
    watch.join()  # no process may be forked beside a thread

    while message := _receive(control):
        operation, process_id, descriptor = message
        if operation == KILL:
            _kill(process_id)
        elif operation == CLONE:
            control = _clone(control, descriptor)
        else:
            process_id = _fork(control, descriptor, int(sys.argv[2]), jobs)
            # The worker may have exited in the meantime: then `_receive` returns None.
            with contextlib.suppress(ConnectionError):
                control.sendall(MESSAGE.pack(FORK, process_id))


def _exit_at_end(control: socket.socket, is_loaded: threading.Event) -> None:
    """Exit when the other end of the socket is closed; return when the modules are loaded."""
    closing = select.poll()
    closing.register(control, 0)  # only POLLHUP: messages wait for the modules
    while not is_loaded.is_set():
        if closing.poll(_WATCH_MILLISECONDS):
            os._exit(0)


def _receive(control: socket.socket) -> tuple[bytes, int, int] | None:
    """Return operation, process id and descriptor (-1 for none) of a message; None at the end."""
    message, descriptors, _, _ = socket.recv_fds(control, MESSAGE.size, 1, socket.MSG_WAITALL)
    if len(message) < MESSAGE.size:
        return None
    return *MESSAGE.unpack(message), descriptors[0] if descriptors else -1


def _clone(control: socket.socket, descriptor: int) -> socket.socket:
    """Fork this program; return the control socket of the process that this one now is."""
    # The clones are reaped by the system. A program that has some forks nothing else.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if os.fork():
        os.close(descriptor)
        return control
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    control.close()
    return socket.socket(fileno=descriptor)


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
        hide_processes()
        _limit_memory(memory_bytes_max)
        run_jobs(Connection(descriptor), jobs)
    finally:
        os._exit(0)  # never return into the parent's loop


def hide_processes() -> bool:
    """Keep this process from the memory, environment and files of others of its account.

    The worker's have every secret, and those of other handlers a tenant's data. Any Landlock domain
    does that, whatever else it forbids: here, to make symbolic links. Returns whether it is in
    force: not without Linux 5.13 or where it is turned off.
    https://docs.kernel.org/userspace-api/landlock.html#ptrace-restrictions
    """
    if sys.platform != "linux" or os.uname().machine not in _LANDLOCK_MACHINES:
        return False
    libc = ctypes.CDLL(None)
    forbidden = ctypes.c_uint64(_LANDLOCK_MAKE_SYM)
    size = ctypes.c_size_t(ctypes.sizeof(forbidden))
    rules = libc.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(forbidden), size, 0)
    if rules < 0:
        return False
    try:
        # Else only root may restrict itself: what it executes could have more rights.
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return libc.syscall(_LANDLOCK_RESTRICT_SELF, rules, 0) == 0  # type: ignore[no-any-return] # an int
    finally:
        os.close(rules)


def _limit_memory(bytes_max: int) -> None:
    """Limit the address space to its size now plus `bytes_max`, and disable core files.

    A core file would contain a tenant's data.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + bytes_max
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
