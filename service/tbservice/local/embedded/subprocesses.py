"""Starting, watching and stopping the server processes that live beside ours."""

from __future__ import annotations

import contextlib
import fcntl
import os
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
LOG_BYTES_MAX = 8 * 1024 * 1024
"""Bytes from which a log is set aside at the next start."""


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """How a program is made to end: the signal at which it does so tidily, and the seconds after which it is killed."""

    signal: signal.Signals
    seconds: float


class ChildProcess:
    """A running server. Start it from a thread that lives as long as the server: Linux ties it to that thread."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], log: Path, stop_policy: StopPolicy
    ) -> None:
        """Use `start`."""
        self.name = name
        self.log = log
        self._process = process
        self._stop_policy = stop_policy

    def is_running(self) -> bool:
        """Tells whether the process is alive."""
        return self._process.poll() is None

    def check(self) -> None:
        """Raises StartupError, with the last lines of its log, when the process has ended."""
        if not self.is_running():
            code = self._process.returncode
            raise StartupError(
                f"{self.name} stopped with exit code {code}: {last_lines(self.log)} (all of it: {self.log})"
            )

    def request_stop(self) -> None:
        """Asks the process to end and returns at once; asking again, or after the end, does nothing new."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(self._stop_policy.signal)

    def stop(self) -> None:
        """Asks the process to end, kills it when it takes too long, and returns when it is gone."""
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
    """Starts `command` with its output appended to `log`; it holds `lock` while it lives and stops when we die.

    `account` are arguments of `launch.py` that say whom to run as.
    """
    lock.unlink(
        missing_ok=True
    )  # nobody holds it: see `stop_stale`; a fresh one never shows an old process id
    death = ["--death-signal", str(int(stop_policy.signal)), "--parent", str(os.getpid())]
    with _open_log(log) as output:
        process = subprocess.Popen(
            launch_command(command, ["--lock", str(lock), *account, *death]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=log.parent,
        )
    return ChildProcess(name, process, log, stop_policy)


def launch_command(command: Sequence[str | Path], options: Sequence[str]) -> list[str]:
    """The command line that runs `command` through `launch.py`."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), *options, "--", *map(str, command)]


def stop_stale(lock: Path, stop_policy: StopPolicy) -> None:
    """Stops the process that a killed parent left holding `lock`, if there is one. Nobody else's process is touched.

    Raises StartupError when it does not end even when it is killed.
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
            f"process {find_lock_holder(lock)} still holds {lock} and does not end: stop it, then try again"
        )


def find_lock_holder(lock: Path) -> int | None:
    """The id of the process that holds the lock, or None when nobody does."""
    if not lock.exists():
        return None
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read_process_id(file)
        return None


def last_lines(log: Path) -> str:
    """The end of a log on one line."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    return (
        " / ".join([line.strip() for line in lines if line.strip()][-LOG_LINES_SHOWN:])
        or "it left no message"
    )


def _read_process_id(file: BinaryIO) -> int:
    text = file.read()
    if not text.endswith(b"\n"):
        raise StartupError(f"{file.name} is being written: try again in a second")
    return int(text)


def _open_log(log: Path) -> BinaryIO:
    """Opens a log for appending; one that has grown large becomes `<name>.1` first."""
    if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
        log.replace(log.with_name(log.name + ".1"))
    return log.open("ab")


def _wait_released(lock: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while find_lock_holder(lock) is not None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
