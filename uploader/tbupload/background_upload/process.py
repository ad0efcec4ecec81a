"""`tbupload` as a background process of a script: start it, read its output, stop it."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from tbupload.background_upload.rest_command import command_for_rest
from tbupload.background_upload.result import COUNTS, Result
from tbupload.console.terminal import escape
from tbupload.recording.console_tail import Console
from tbupload.recording.exit_status import Ending
from tbupload.recording.script import SCRIPT_VARIABLE, describe_script

EXPERIMENT_SECONDS: Final = 30.0
"""How long after the start to wait for the uploader to report the experiment.

Longer than a connection may take: then the first message ends the wait.
"""

EXPERIMENT_SECONDS_AFTER_MESSAGE: Final = 1.0
"""How long to wait for it after a first message: probably, the server does not answer."""

USAGE_ERROR: Final = 2
"""The exit code of an uploader whose options are wrong: the same options would fail again."""

NICENESS: Final = 10
"""Added to the script's nice value: a higher one is a lower priority."""

NICENESS_MAX: Final = 19
"""The greatest nice value of Linux."""

MESSAGES_MAX: Final = 100
"""The last lines of the uploader's stderr that are kept for the result."""

READ_BYTES: Final = 1 << 16

COMMAND_SECONDS_MAX: Final = 1.0
"""How long a command waits until another one is written."""

WAIT_SECONDS: Final = 86_400.0
"""Longest single wait: those of threads have a limit, and a wait may be without one."""

_PROGRAM: Final = (
    ["-P", "-m", "tbupload"]
    if sys.version_info >= (3, 11)
    else ["-c", "import sys; del sys.path[0]; from tbupload.cli import main; sys.exit(main())"]
)
"""A file in the working directory must not shadow a module that the uploader imports."""

FIXED_OPTIONS: Final = ("--json", "--quiet", "--wait-for-logdir", "--commands-from-stdin")
"""Options of each uploader that a script starts."""

logger: Final = logging.getLogger("tbupload")


class UploaderProcess:
    """A running uploader; two threads read its stdout (events) and stderr (messages).

    It ends by itself after this process has. Its stdin takes commands. `script` describes what it
    records as the training, by default this process. The constructor raises OSError, ValueError or
    RuntimeError if the process cannot be started.
    """

    def __init__(self, options: list[str], token: str | None, script: str | None = None) -> None:
        self._options = options
        self._owner_pid = os.getpid()
        self._started_at = time.monotonic()
        self._messages: list[str] = []
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._experiment: dict[str, Any] | None = None
        self._latest: dict[str, Any] = {}
        self._look_count = 0
        self._messaged_at = math.inf
        self._asked_at = math.inf
        self._has_output = True
        self._may_end = False
        self._process = _start(options, token, describe_script() if script is None else script)
        # DataLoader workers are forks: an inherited pipe would keep the uploader's stdin open after
        # this process has died.
        _close_pipes_after_fork()
        _started.add(self)
        self._readers = [
            threading.Thread(target=work, name=f"tbupload {self._process.pid}", daemon=True)
            for work in (self._read_events, self._read_messages)
        ]
        with signals_blocked():
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

    @property
    def has_experiment(self) -> bool:
        """Return whether the uploader has reported one: the server has answered."""
        return self._experiment is not None

    def experiment_event(self) -> dict[str, Any]:
        """Return the last event with an experiment, or {} if none arrived.

        Wait for it for EXPERIMENT_SECONDS after the start, and not so long if it is in trouble.
        """
        if self.is_owned_here:
            with self._changed:
                while self._experiment is None and self._has_output:
                    end = min(
                        self._started_at + EXPERIMENT_SECONDS,
                        self._messaged_at + EXPERIMENT_SECONDS_AFTER_MESSAGE,
                    )
                    if not self._changed.wait(max(0.0, end - time.monotonic())):
                        break
        return self._experiment or {}

    def request_stop(self) -> None:
        """Request an orderly stop; a no-op if its stdin is closed already."""
        self._command("stop")
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).close()

    def retire(self, quiet_seconds: float) -> None:
        """Request its end once the files have been unchanged for this time."""
        self._command(f"retire {quiet_seconds:f}")

    def report_ending(self, ending: Ending) -> None:
        """Let the uploader record how the training is, or has ended."""
        fields = {"status": ending.status, "detail": ending.detail, "at": time.time()}
        self._command(f"status {json.dumps(fields)}", may_end=self._may_end)

    def report_console(self, console: Console) -> None:
        """Let the uploader record the last lines that the training has printed."""
        self._command(f"console {json.dumps(console, ensure_ascii=False)}", may_end=self._may_end)

    def request_look(self) -> str:
        """Ask for a look at the files now; return its name, for `wait_for_look`."""
        self._look_count += 1
        name = str(self._look_count)
        self._command(f"look {name}", may_end=self._may_end)
        return name

    def wait_for_look(
        self, name: str, seconds: float, answer_seconds: float = math.inf, since: float = 0.0
    ) -> Result:
        """Wait until it has committed what was in the files when it was asked, or has ended.

        After `seconds`, return the result so far, with the exit code None. A server that has never
        answered is waited for no longer than `answer_seconds`: from `since` (of the monotonic
        clock) on, or from the first request if that was later, as on a machine that is busy.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            while self._has_output and int(self._latest.get("look", 0)) < int(name):
                end = deadline
                if self._experiment is None:
                    end = min(end, max(since, self._asked_at) + answer_seconds)
                self._changed.wait(max(0.0, min(end - time.monotonic(), WAIT_SECONDS)))
                if time.monotonic() >= end:
                    return self._result(None)
        if not self._has_output:
            return self.wait(max(1.0, deadline - time.monotonic()))
        return self._result(1 if self._latest["skipped"] or self._latest["problems"] else 0)

    def wait(self, seconds: float) -> Result:
        """Wait for its exit for at most `seconds`, and return the result so far."""
        deadline = time.monotonic() + seconds
        try:
            code = self._process.wait(max(0.0, min(seconds, WAIT_SECONDS)))
        except subprocess.TimeoutExpired:
            return self._result(None)
        for reader in self._readers:
            reader.join(min(WAIT_SECONDS, max(1.0, deadline - time.monotonic())))
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

    def _command(self, line: str, *, may_end: bool = True) -> None:
        self._may_end = may_end
        # A console is more than a pipe takes in one piece. An uploader that hangs gets nothing
        # more: it must not hold up the script.
        if not self._writing.acquire(timeout=COMMAND_SECONDS_MAX):
            return
        try:
            with contextlib.suppress(OSError, ValueError):
                _pipe(self._process.stdin).write(f"{line}\n".encode("utf-8", "replace"))
        finally:
            self._writing.release()

    def _read_events(self) -> None:
        for line in _lines(_pipe(self._process.stdout)):
            with contextlib.suppress(ValueError), self._changed:
                event = json.loads(line)
                # Before the first answer; waits for a server that never answers are counted from
                # here.
                if event.get("event") == "connecting":
                    self._asked_at = time.monotonic()
                elif "url" in event:  # the first, or another one: a run was trained again
                    self._lower_priority()
                    self._experiment = event
                else:
                    self._latest = event
                self._changed.notify_all()
        with self._changed:
            self._has_output = False
            self._changed.notify_all()

    def _lower_priority(self) -> None:
        """Give the uploader a lower priority than the script.

        Not at its start: on a busy machine, loading its modules then takes ten times as long, and
        the script waits for its URL.
        """
        if self._experiment is None and sys.platform != "win32" and self._process.poll() is None:
            with contextlib.suppress(OSError):
                _lower_priority(self._process.pid)

    def _read_messages(self) -> None:
        for line in _lines(_pipe(self._process.stderr)):
            with self._changed:
                self._messages = [*self._messages[1 - MESSAGES_MAX :], line]
                self._messaged_at = min(self._messaged_at, time.monotonic())
                self._changed.notify_all()
            logger.warning(
                "%s", escape(line if line.startswith("tbupload: ") else f"tbupload: {line}")
            )
        code = self._process.wait()
        with contextlib.suppress(OSError):
            _pipe(self._process.stdin).close()
        if not self._may_end:
            logger.warning(
                "tbupload: the uploader exited unexpectedly (%s); the script continues without it",
                _code_text(code),
            )

    def _result(self, code: int | None) -> Result:
        experiment, latest = self._experiment or {}, self._latest
        explanation = (
            "" if code == 0 else self._explanation(code, experiment.get("experiment_id"), latest)
        )
        return Result(
            code,
            experiment.get("experiment_id"),
            experiment.get("url"),
            **{name: latest.get(name, 0) for name in COUNTS},
            skipped=latest.get("skipped", {}),
            problems=tuple(latest.get("problems", ())),
            is_growing=latest.get("growing", False),
            explanation=explanation,
        )

    def _explanation(
        self, code: int | None, experiment_id: str | None, last: dict[str, Any]
    ) -> str:
        command = command_for_rest(self._options, experiment_id)
        if code is None:
            return (
                f"process {self._process.pid} is still sending the rest; "
                f"if it does not finish, run: {command}"
            )
        if last.get("event") in {"done", "looked"}:
            missing = ", ".join(
                f"{reason} ({count:,})" for reason, count in last.get("skipped", {}).items()
            )
            return f"some data could not be sent: {missing or last.get('problems')}"
        # Not the line in brackets that names the command's help: there was no command.
        messages = [line for line in self._messages if not line.startswith("(")]
        reason = last.get("error") or (messages[-1] if messages else "no message")
        reason = reason.removeprefix("tbupload: ")
        if code == USAGE_ERROR:
            return f"the upload failed ({_code_text(code)}): {reason}"
        return f"the upload failed ({_code_text(code)}): {reason}; to send the rest, run: {command}"


def _start(options: list[str], token: str | None, script: str) -> subprocess.Popen[bytes]:
    # The token goes by the environment: arguments are visible to all users of the machine (ps).
    environment = dict(os.environ)
    if token is not None:
        environment["TBHUB_TOKEN"] = token
    environment[SCRIPT_VARIABLE] = script

    # In its own session, the uploader does not receive the terminal's Ctrl-C.
    platform_options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        platform_options = {
            "creationflags": subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.BELOW_NORMAL_PRIORITY_CLASS
        }

    # https://docs.python.org/3/library/sys.html#sys.executable: may be empty in embedded
    # interpreters.
    if not sys.executable or getattr(sys, "frozen", False):
        raise RuntimeError(
            "no Python interpreter to run `python -m tbupload` with (frozen program): "
            "start the command tbupload separately"
        )

    with _own_descriptor() as descriptors:
        return subprocess.Popen(
            [
                sys.executable,
                *_PROGRAM,
                "upload",
                *options,
                *FIXED_OPTIONS,
                f"--end-with-process={os.getpid()}",
                *(f"--process-descriptor={each}" for each in descriptors),
            ],
            env=environment,
            # Unbuffered: a command is sent by its write.
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=descriptors,
            **platform_options,
        )


def _lower_priority(process_id: int) -> None:
    """Give a process that leads a session a lower priority than this one. Raises OSError."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + NICENESS
    os.setpriority(os.PRIO_PROCESS, process_id, niceness)
    # Where Linux groups processes by session, its niceness counts only inside of the session, and
    # that of the group among sessions: sched(7), "The autogroup feature".
    group = Path(f"/proc/{process_id}/autogroup")
    if group.exists():
        group.write_text(str(min(niceness, NICENESS_MAX)))


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Block signals in threads that are started in the block: they are for the caller's own."""
    if sys.platform == "win32":
        yield
        return
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextlib.contextmanager
def _own_descriptor() -> Iterator[list[int]]:
    """Yield a descriptor of this process for the uploader, or none where there is no such thing.

    With it, the uploader learns how this process ends even if that is before it has started.
    """
    try:
        # https://man7.org/linux/man-pages/man2/pidfd_open.2.html: a number can be reused, this
        # cannot.
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        yield []
        return
    try:
        yield [descriptor]
    finally:
        os.close(descriptor)


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
