"""`tbupload` as a background process of a script: start it, read its output, stop it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final

from tbupload.commands.origin import COMMAND_VARIABLE
from tbupload.console.terminal import escape

EXPERIMENT_SECONDS: Final = 10.0
"""How long after the start to wait for the uploader to report the experiment."""

NICENESS: Final = 10
"""Added to the script's nice value: a higher one is a lower priority."""

MESSAGES_MAX: Final = 100
"""The last lines of the uploader's stderr that are kept for the result."""

READ_BYTES: Final = 1 << 16

FIXED_OPTIONS: Final = ("--json", "--quiet", "--wait-for-logdir", "--end-with-stdin")
"""Options of each uploader that a script starts."""

logger: Final = logging.getLogger("tbupload")


@dataclass(frozen=True, slots=True)
class Result:
    """How a background upload ended, and what it sent.

    Attributes:
        exit_code: 0 everything is committed; 1 failed, or something was skipped; 2 wrong usage;
            75 server unavailable, retry later; negative: killed by that signal. None if the
            uploader could not be started, or was still sending when the wait was over.
        experiment_id: the experiment's ID, or None if it is unknown.
        url: the experiment's URL, or None if it is unknown.
        scalars: number of scalar points that were sent.
        tensors: number of tensor points that were sent.
        blobs: number of blobs (images, audio, graphs) that were sent.
        bytes: bytes of event files that were sent.
        runs: number of runs.
        series: number of time series.
        empty_values: number of values without content, which are not stored.
        superseded: points replaced by a later one of the same series, step and file.
        skipped: number of values that could not be uploaded, by reason.
        problems: one sentence per file or path that could not be uploaded completely.
        explanation: what went wrong and how to send the rest; empty if everything is committed.
    """

    exit_code: int | None
    experiment_id: str | None = None
    url: str | None = None
    scalars: int = 0
    tensors: int = 0
    blobs: int = 0
    bytes: int = 0
    runs: int = 0
    series: int = 0
    empty_values: int = 0
    superseded: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    explanation: str = ""

    @property
    def is_complete(self) -> bool:
        """Return whether everything in the log directory is committed."""
        return self.exit_code == 0


class UploaderProcess:
    """A running uploader; two threads read its stdout (events) and stderr (messages).

    Its stdin is a pipe that stays open until `request_stop`. The constructor raises OSError,
    ValueError or RuntimeError if the process cannot be started.
    """

    def __init__(self, options: list[str], token: str | None) -> None:
        self._options = options
        self._owner_pid = os.getpid()
        self._started_at = time.monotonic()
        self._events: list[dict[str, Any]] = []
        self._messages: list[str] = []
        self._has_event = threading.Event()
        self._is_stop_requested = False
        self._process = _start(options, token)
        _close_pipes_after_fork()
        _started.add(self)
        self._readers = [
            threading.Thread(target=work, name=f"tbupload {self._process.pid}", daemon=True)
            for work in (self._read_events, self._read_messages)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def is_owned_here(self) -> bool:
        """Return whether the current process started it, and is not a fork of that process."""
        return os.getpid() == self._owner_pid

    @property
    def is_running(self) -> bool:
        """Return whether the process has not exited; False in a forked process."""
        return self.is_owned_here and self._process.poll() is None

    def experiment_event(self) -> dict[str, Any]:
        """Return the last event with an experiment, {} if none came within EXPERIMENT_SECONDS."""
        if self.is_owned_here:
            self._has_event.wait(max(0.0, self._started_at + EXPERIMENT_SECONDS - time.monotonic()))
        return next((event for event in reversed(self._events) if "url" in event), {})

    def request_stop(self) -> None:
        """Request an orderly stop by writing to its stdin; a no-op if that is closed already."""
        self._is_stop_requested = True
        with contextlib.suppress(OSError, ValueError):
            _pipe(self._process.stdin).write(b"\n")
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).close()

    def wait(self, seconds: float) -> Result:
        """Wait for its exit for at most `seconds`, and return the result so far."""
        deadline = time.monotonic() + seconds
        try:
            code = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return self._result(None)
        for reader in self._readers:
            reader.join(max(1.0, deadline - time.monotonic()))
        return self._result(code)

    def close_pipes(self) -> None:
        """Close the pipes in a forked child, so that the uploader sees EOF when the parent dies.

        The descriptors are redirected to /dev/null instead of closed: the file objects in the child
        will close the same numbers later, which might belong to other files by then.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                os.dup2(null, pipe.fileno(), inheritable=False)
        os.close(null)

    def _read_events(self) -> None:
        for line in _lines(_pipe(self._process.stdout)):
            with contextlib.suppress(ValueError):
                self._events.append(json.loads(line))
            self._has_event.set()
        self._has_event.set()

    def _read_messages(self) -> None:
        for line in _lines(_pipe(self._process.stderr)):
            self._messages = [*self._messages[1 - MESSAGES_MAX :], line]
            logger.warning(
                "%s", escape(line if line.startswith("tbupload: ") else f"tbupload: {line}")
            )
        code = self._process.wait()
        if not self._is_stop_requested:
            logger.warning(
                "tbupload: the uploader exited unexpectedly (%s); the script continues without it",
                _code_text(code),
            )

    def _result(self, code: int | None) -> Result:
        event, last = self.experiment_event(), self._events[-1] if self._events else {}
        names = (
            "scalars",
            "tensors",
            "blobs",
            "bytes",
            "runs",
            "series",
            "empty_values",
            "superseded",
        )
        return Result(
            code,
            event.get("experiment_id"),
            event.get("url"),
            **{name: last.get(name, 0) for name in names},
            skipped=last.get("skipped", {}),
            problems=tuple(last.get("problems", ())),
            explanation=""
            if code == 0
            else self._explanation(code, event.get("experiment_id"), last),
        )

    def _explanation(
        self, code: int | None, experiment_id: str | None, last: dict[str, Any]
    ) -> str:
        command = f"tbupload {shlex.quote(self._options[0])} --one-shot"
        if experiment_id:
            command += f" --experiment {experiment_id}"
        if code is None:
            return (
                f"process {self._process.pid} is still sending the rest; "
                f"if it does not finish, run: {command}"
            )
        if last.get("event") == "done":
            missing = ", ".join(
                f"{count:,} {reason}" for reason, count in last.get("skipped", {}).items()
            )
            return f"some data could not be sent: {missing or last.get('problems')}"
        reason = last.get("error") or (self._messages[-1] if self._messages else "no message")
        reason = reason.removeprefix("tbupload: ")
        return f"the upload failed ({_code_text(code)}): {reason}; to send the rest, run: {command}"


def _start(options: list[str], token: str | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if token is not None:
        environment["TBHUB_TOKEN"] = token
    # What the experiment records as its command: the script, not the uploader.
    environment[COMMAND_VARIABLE] = json.dumps(sys.argv)

    # In its own session, the uploader does not receive the terminal's Ctrl-C.
    platform_options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        platform_options = {
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.BELOW_NORMAL_PRIORITY_CLASS
        }

    if not sys.executable or getattr(sys, "frozen", False):
        raise RuntimeError(
            "no Python interpreter to run `python -m tbupload` with (frozen program): "
            "start the command tbupload separately"
        )

    process = subprocess.Popen(
        # -P: a file in the working directory must not shadow a module that the uploader imports.
        [sys.executable, "-P", "-m", "tbupload", "upload", *options, *FIXED_OPTIONS],
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **platform_options,
    )

    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.setpriority(
                os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
            )
    return process


_started: Final[weakref.WeakSet[UploaderProcess]] = weakref.WeakSet()


@functools.cache
def _close_pipes_after_fork() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_close_pipes)


def _close_pipes() -> None:
    for uploader in _started:
        uploader.close_pipes()


def _lines(pipe: IO[bytes]) -> Iterator[str]:
    """Yield each line as soon as it is complete, drop an incomplete last one, close the pipe."""
    pending: list[bytes] = []
    with pipe:
        while chunk := pipe.read(READ_BYTES):
            *complete, rest = chunk.split(b"\n")
            for line in complete:
                yield b"".join([*pending, line]).decode("utf-8", "replace")
                pending = []
            pending.append(rest)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "every stream of the process is a pipe"  # noqa: S101  # for the type checker
    return pipe


def _code_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
