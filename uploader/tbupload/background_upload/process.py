"""A `tbupload` process in the background of a script: starting it, hearing what it says, asking it to end."""

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

from tbupload.console.terminal import escape

EXPERIMENT_SECONDS: Final = 10.0
"""How long after the start it is waited for that the uploader names the experiment."""

NICENESS: Final = 10
"""How much lower the uploader's priority is than the script's."""

MESSAGES_MAX: Final = 100
"""Of what the uploader said, the last sentences are kept."""

READ_BYTES: Final = 1 << 16

FIXED_OPTIONS: Final = ("--json", "--quiet", "--wait-for-logdir", "--end-with-stdin")
"""Options of every uploader that a script starts."""

logger: Final = logging.getLogger("tbupload")


@dataclass(frozen=True, slots=True)
class Result:
    """How an upload ended.

    `exit_code` is the uploader's (0: everything committed; 1: failed, or something was skipped; 2: wrong usage; 75: try
    again later), None when it could not be started, or was still sending when nobody waited any longer. Counts are of
    what this upload sent; `bytes` are of event files, `empty_values` tags without content, `superseded` points
    that others of the same series, step and file replace; `skipped` counts by reason and `problems` says by path what
    is missing. `explanation` is empty when all is well, else what went wrong and how to send the rest.
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
        """Whether everything that was there is on the server."""
        return self.exit_code == 0


class UploaderProcess:
    """The process and what it said, which two threads read; its stdin is a pipe, open until it is asked to end.

    Raises OSError, ValueError or RuntimeError when it cannot be started.
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
        """Whether this process started it."""
        return os.getpid() == self._owner_pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.is_owned_here and self._process.poll() is None

    def experiment_event(self) -> dict[str, Any]:
        """The event that names the experiment; empty when it did not come within EXPERIMENT_SECONDS of the start."""
        if self.is_owned_here:
            self._has_event.wait(max(0.0, self._started_at + EXPERIMENT_SECONDS - time.monotonic()))
        return self._events[0] if self._events and "url" in self._events[0] else {}

    def request_stop(self) -> None:
        """Anything on its stdin asks for an orderly end; where that is closed already, it knows."""
        self._is_stop_requested = True
        with contextlib.suppress(OSError, ValueError):
            _pipe(self._process.stdin).write(b"\n")
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).close()

    def wait(self, seconds: float) -> Result:
        """How it ended, or that it has not within this time."""
        deadline = time.monotonic() + seconds
        try:
            code = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return self._result(None)
        for reader in self._readers:
            reader.join(max(1.0, deadline - time.monotonic()))
        return self._result(code)

    def close_pipes(self) -> None:
        """In a forked child: lets go of our ends, so that the uploader notices when the parent has died.

        The descriptors stay taken: what else is in memory would close the numbers once more, whoever has them then.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None and not pipe.closed:
                os.dup2(nowhere, pipe.fileno(), inheritable=False)
        os.close(nowhere)

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
                "tbupload: the uploader ended by itself (%s); the script goes on without it",
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
            return f"the rest is still being sent by process {self._process.pid}; should that die: {command}"
        if last.get("event") == "done":
            missing = ", ".join(
                f"{count:,} {reason}" for reason, count in last.get("skipped", {}).items()
            )
            return f"not everything could be sent: {missing or last.get('problems')}"
        why = last.get("error") or (self._messages[-1] if self._messages else "it said nothing")
        return f"the upload failed ({_code_text(code)}): {why.removeprefix('tbupload: ')}; to send the rest: {command}"


def _start(options: list[str], token: str | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if token is not None:
        environment["TBHUB_TOKEN"] = token
    more: dict[str, Any] = {
        "start_new_session": True
    }  # so that Ctrl-C reaches the training, and it alone
    if sys.platform == "win32":
        more = {
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.BELOW_NORMAL_PRIORITY_CLASS
        }
    if not sys.executable or getattr(sys, "frozen", False):
        raise RuntimeError(
            "there is no Python here to run `python -m tbupload` with; run tbupload beside the script"
        )
    process = subprocess.Popen(
        # -P: a file of the script's directory must not take the place of a module that the uploader needs.
        [sys.executable, "-P", "-m", "tbupload", "upload", *options, *FIXED_OPTIONS],
        env=environment,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
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
    """The lines that come through the pipe, each as soon as it is whole; closes it at the end."""
    parts: list[bytes] = []
    with pipe:
        while chunk := pipe.read(READ_BYTES):
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                yield b"".join([*parts, line]).decode("utf-8", "replace")
                parts = []
            parts.append(rest)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None, "every stream of the process is a pipe"  # noqa: S101  # for the type checker
    return pipe


def _code_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
