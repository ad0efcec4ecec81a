"""Start, check and stop server processes as children of this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tbservice import launch
from tbservice.errors import StartupError

LAUNCHER = Path(launch.__file__)
POLL_SECONDS = 0.02
LOG_LINES_SHOWN = 3
REASON = re.compile(r"^[EF]\d{4} |\b(ERROR|FATAL|PANIC): ")
"""Lines of logs that say why a server stopped: SeaweedFS prints stack frames after them."""
LOG_BYTES_MAX = 8 * 1024 * 1024
"""Bytes above which a log is rotated at the next start."""


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """How to stop a program: the signal for an orderly exit, and the seconds until it is killed."""

    signal: signal.Signals
    seconds: float


class ServerStopped(StartupError):
    """A server process has ended by itself."""


class ChildProcess:
    """A running server process.

    Start it from a thread that lives as long as the server: its death signal is sent when that
    thread ends (prctl(2), PR_SET_PDEATHSIG).
    """

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        log: Path,
        stop_policy: StopPolicy,
        earlier_log_bytes: int,
    ) -> None:
        """Use `start`."""
        self.name = name
        self.log = log
        self._earlier_log_bytes = earlier_log_bytes
        self._process = process
        self._stop_policy = stop_policy

    def is_running(self) -> bool:
        """Return whether the process is alive."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raise ServerStopped with the reason in its log if the process has ended."""
        if not self.is_running():
            code = self._process.returncode
            raise ServerStopped(
                f"{self.name} stopped with exit code {code}: "
                f"{find_reason(self.log, self._earlier_log_bytes)} (full log: {self.log})"
            )

    def request_stop(self) -> None:
        """Send the stop signal and return at once. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._stop_policy.signal)

    def stop(self) -> None:
        """Stop the process, kill it after the policy's timeout, and return when it has ended."""
        self.request_stop()
        try:
            self._process.wait(self._stop_policy.seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(
    name: str,
    command: Sequence[str | Path],
    *,
    lock: Path,
    log: Path,
    stop_policy: StopPolicy,
    environment: Mapping[str, str],
    account: Sequence[str] = (),
) -> ChildProcess:
    """Start a server process that stops when this process ends.

    Args:
        name: Name of the server for error messages.
        command: Program and arguments.
        lock: File that the process locks while it lives, and writes its id to.
        log: File that its output is appended to.
        stop_policy: How to stop it, also when this process ends.
        environment: Its complete environment.
        account: Arguments of `launch.py` for the account to run as.
    """
    # No process holds it (`stop_stale`), and a new file never contains an old process id.
    lock.unlink(missing_ok=True)

    death = ["--death-signal", str(int(stop_policy.signal)), "--parent", str(os.getpid())]
    with _open_log(log) as output:
        earlier_log_bytes = output.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            launch_command(command, ["--lock", str(lock), *account, *death]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=log.parent,
            # A terminal's Ctrl-C is for the service alone, which uses its servers until it ends.
            process_group=0,
        )
    return ChildProcess(name, process, log, stop_policy, earlier_log_bytes)


def launch_command(command: Sequence[str | Path], options: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` through `launch.py`."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), *options, "--", *map(str, command)]


def stop_stale(lock: Path, stop_policy: StopPolicy) -> None:
    """Stop the process that still holds `lock` after its parent was killed, if there is one.

    The lock proves that it is our process. Raises StartupError if it survives SIGKILL.
    """
    for attempt in (stop_policy.signal, signal.SIGKILL):
        process_id = find_lock_holder(lock)
        if process_id is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, attempt)
        _wait_released(lock, stop_policy.seconds)
    if find_lock_holder(lock) is not None:
        raise StartupError(
            f"process {find_lock_holder(lock)} still holds {lock} and does not end: "
            "stop it, then try again"
        )


def find_lock_holder(lock: Path) -> int | None:
    """Return the id of the process that holds the lock, or None."""
    if not lock.exists():
        return None
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_process_id(file)
        return None


def find_reason(log: Path, earlier_bytes: int = 0) -> str:
    """Return the last LOG_LINES_SHOWN errors of a log, or lines if it has none, as one line.

    What `earlier_bytes` at its beginning contain is of earlier processes.
    """
    text = log.read_bytes()[earlier_bytes:].decode(errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    reasons = [line for line in lines if REASON.search(line)] or lines
    return " / ".join(reasons[-LOG_LINES_SHOWN:]) or "its log is empty"


def _read_process_id(file: BinaryIO) -> int:
    text = file.read()
    if not text.endswith(b"\n"):
        raise StartupError(f"{file.name} is being written: try again in a second")
    return int(text)


def _open_log(log: Path) -> BinaryIO:
    """Open a log for appending; rename one above LOG_BYTES_MAX to `<name>.1` first."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))
    return log.open("ab")


def _wait_released(lock: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while find_lock_holder(lock) is not None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
