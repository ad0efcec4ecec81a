"""Processes with the modules of `tbservice serve` or of `tbupload` imported, from which tests fork
them: a start then takes 2 s, or 0.5 s, of processor time less.

A forked program runs the `__main__.py` of its package from its first line, with its own arguments,
environment and output; a service forks its worker processes itself, and has clones of the programs
that handler processes are forked from (`tbservice.handlers.processes`).
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from support.waiting import SECONDS_MAX

MODULES = {
    "tbservice": (
        "tbservice.server.workers",
        "sqlalchemy.dialects.postgresql.psycopg",
        "tbservice.katib.methods",
        "tbservice.api.grpc.reflection",
        "tbservice.local.service",
        "tbservice.local.demo.upload",
    ),
    "tbupload": ("tbupload.cli", "tbupload.commands.upload"),
}
"""Modules that each program imports, also later ones, as the service's for its database."""

MODULES["small_service"] = MODULES["tbservice"]
"""`tbservice` with the limits of `support.small_service`, which other modules derive theirs from."""

TESTS = str(Path(__file__).parent.parent)
SERVING = ("serve", "up")
"""Commands of `tbservice` that answer requests."""

STATUS = struct.Struct("=i")
REQUEST_BYTES_MAX = 1 << 20
_control_lock = threading.Lock()
"""Held from a request to its answer: tests fork in several threads."""


class ForkedProcess:
    """A forked process, with what tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def poll(self) -> int | None:
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises TimeoutExpired after that many seconds."""
        code = self._read_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _read_status(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            message = self._status.recv(STATUS.size)
            assert message, "the process that the service was forked from has ended"
            self.returncode = os.waitstatus_to_exitcode(*STATUS.unpack(message))
            self._status.close()
        return self.returncode


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    program: str = "tbservice",
    directory: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `fork` starts it. Raises TimeoutExpired after two minutes."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        files = output.fileno(), errors.fileno()
        process = fork(program, arguments, environment, *files, directory=directory)
        try:
            code = process.wait(SECONDS_MAX)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())


def fork(
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: int,
    errors: int | None = None,
    *,
    directory: Path | None = None,
    is_session: bool = False,
) -> ForkedProcess:
    """Run a program of `MODULES` with these arguments and all of this environment.

    `output` is the descriptor that its stdout goes to, and, without `errors`, its stderr; its stdin
    is empty. It runs in the directory, or where this process does; with `is_session`, it leads a
    group of processes.
    """
    status, other_end = socket.socketpair()
    request = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "directory": str(directory or Path.cwd()),
        "is_session": is_session,
    }
    content = json.dumps(request).encode()
    with other_end, _control_lock:
        control = _start(program)
        descriptors = [output, output if errors is None else errors, other_end.fileno()]
        socket.send_fds(control, [content], descriptors)
        process_id = int(control.recv(16))
    return ForkedProcess(process_id, status)


@functools.cache
def _start(program: str) -> socket.socket:
    """Start the process to fork from, which ends with this one; return how to tell it what to do."""
    control, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    path = [TESTS, os.environ.get("PYTHONPATH", "")]
    with other_end:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.zygote", program, str(other_end.fileno())],
            pass_fds=[other_end.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )

    def end() -> None:
        control.close()
        process.wait()

    atexit.register(end)
    return control


def main(program: str, control: socket.socket) -> None:
    """Import, then fork as the other end of the control socket asks, until it is closed.

    Returns in the forked processes alone.
    """
    if program == "small_service":
        importlib.import_module("support.small_service")
    sys.path.remove(TESTS)
    gc.disable()  # as `tbservice.__main__` does
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "GRPC_VERBOSITY": "NONE"}  # as its `main` does
    for name in MODULES[program]:
        importlib.import_module(name)
    if program != "tbupload":
        _load_descriptions()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    ended, wake = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        ready = select.select([control, ended], [], [])[0]
        if ended in ready:
            os.read(ended, REQUEST_BYTES_MAX)
            _tell_ends(running)
        if control in ready:
            content, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 3)
            if not content:
                sys.exit()
            output, errors, status = descriptors
            request = json.loads(content)
            kept = _start_handlers(request) if {*request["arguments"][:1]} & {*SERVING} else []
            pid = os.fork()
            if pid == 0:
                for each in (control, *running.values()):
                    each.detach()  # else it would close, later, what then has its number
                _become(program, request, output, errors, kept)
                return
            os.close(output)
            os.close(errors)
            running[pid] = socket.socket(fileno=status)
            control.send(str(pid).encode())


def _load_descriptions() -> None:
    """Load what the first application in a process does: the description of S3's API, 0.15 s.

    Nothing may be left that has a file descriptor: a forked process closes them all.
    """
    from tbservice.objects.s3_client import get_session  # noqa: PLC0415 - not in the tests' process

    for kind in ("service-2", "endpoint-rule-set-1"):
        get_session()._loader.load_service_model("s3", kind)


def _tell_ends(running: dict[int, socket.socket]) -> None:
    with suppress(ChildProcessError):  # that there is none
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            if end[0] in running:  # else a program for handler processes has died
                with running.pop(end[0]) as status:
                    status.send(STATUS.pack(end[1]))


def _start_handlers(request: dict) -> list[int]:
    """Start the programs that handler processes are forked from, once, if a service needs them.

    Return the descriptors by which what is forked asks for clones.
    """
    from tbservice.handlers.processes import get_fork_server  # noqa: PLC0415 - not in the tests' process
    from tbservice.server.app import HANDLER_MODULES  # noqa: PLC0415 - the same
    from tbservice.server.grpc_service import SUGGESTION_MODULES  # noqa: PLC0415 - the same

    has_grpc = {"TBHUB_GRPC_PORT", "--grpc-port"} & {*request["environment"], *request["arguments"]}
    programs = [get_fork_server(HANDLER_MODULES)]
    programs += [get_fork_server(SUGGESTION_MODULES)] if has_grpc else []
    return [program._start().fileno() for program in programs]


def _become(program: str, request: dict, output: int, errors: int, kept: list[int]) -> None:
    """Give this process what a new one would have, and the descriptors that are kept."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    begin = 3
    for descriptor in sorted(kept):
        os.closerange(begin, descriptor)
        begin = descriptor + 1
    os.closerange(begin, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["directory"])
    if request["is_session"]:
        os.setsid()
    os.environ.clear()
    os.environ |= request["environment"]
    sys.argv = [program, *request["arguments"]]
    if program == "tbupload":
        gc.enable()


if __name__ == "__main__":
    name, descriptor = sys.argv[1:]
    main(name, socket.socket(fileno=int(descriptor)))
    package = "tbupload" if name == "tbupload" else "tbservice"
    runpy.run_module(package, run_name="__main__", alter_sys=True)
