"""Requests to an upload that follows its files: the end of a process, and commands on stdin.

`tbupload.follow()` starts uploaders with both. A command is a line: `look NAME`, to commit what is
in the files now and to report it as `{"event": "looked", "look": NAME, ...}`; `retire SECONDS`, to
end once the files have been unchanged for that time; `status JSON`, to record how the training is
or has ended; `console JSON`, to record the last lines that it has printed,
and when; `stop`, to end now.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final

from tbupload.commands.uploading.process_watch import WatchedProcess
from tbupload.config import config_path
from tbupload.console.output import ignore_broken_pipe, print_json
from tbupload.http.cancellation import StopToken
from tbupload.recording.console_tail import Console
from tbupload.recording.exit_status import Ending
from tbupload.recording.recorder import Recorder
from tbupload.upload.follow_control import FollowControl
from tbupload.upload.summary import Summary

STATUS_SECONDS_MAX: Final = 2.0
"""How long the answer to a look waits until the status of the training is recorded."""

CHECK_SECONDS: Final = 1.0
"""Interval of the checks whether a time is over."""

LOG_BYTES_MAX: Final = 1 << 20
"""Size above which `follow.log` is emptied."""

READ_BYTES: Final = 4096


def start_control(
    options: argparse.Namespace, stop_token: StopToken, recorder: Recorder | None
) -> FollowControl | None:
    """Return the control of an upload with `--end-with-process`, or None; start its threads.

    The `recorder` is told how the process ends; None if nothing is recorded.
    """
    if options.end_with_process is None:
        return None
    control = FollowControl(stop_token, partial(_report_look, recorder))
    process = WatchedProcess(
        options.end_with_process,
        is_parent=options.commands_from_stdin,
        descriptor=options.process_descriptor,
    )
    _start_thread("process", _watch, process, control, recorder, options)
    if options.commands_from_stdin:
        # A parent that is stopped does not read our messages: they must not stop the upload.
        with contextlib.suppress(OSError, AttributeError):
            os.set_blocking(sys.stderr.fileno(), False)
        _start_thread("commands", _obey_stdin, control, stop_token, recorder, options)
    return control


def _start_thread(name: str, work: Callable[..., None], *arguments: object) -> None:
    threading.Thread(target=work, args=arguments, name=name, daemon=True).start()


def _watch(
    process: WatchedProcess,
    control: FollowControl,
    recorder: Recorder | None,
    options: argparse.Namespace,
) -> None:
    while not process.has_ended_within(CHECK_SECONDS):
        control.stop_if_due()
    if recorder is not None:
        _start_thread("exit code", lambda: recorder.set_exit(process.find_ending()))
    _end_with_process(control, options)


def _end_with_process(control: FollowControl, options: argparse.Namespace) -> None:
    if options.commands_from_stdin:
        _write_to_log(options)
    control.end_with_process(options.quiet_seconds)
    while True:
        threading.Event().wait(CHECK_SECONDS)
        control.stop_if_due()


def _obey_stdin(
    control: FollowControl,
    stop_token: StopToken,
    recorder: Recorder | None,
    options: argparse.Namespace,
) -> None:
    for line in _stdin_lines():
        command, _, argument = line.partition(" ")
        if command == "look":
            control.request_look(argument)
        elif command == "retire":
            if recorder is not None:
                recorder.ignore_exit()
            control.end_when_quiet(float(argument))
        elif command == "status":
            if recorder is not None:
                fields = json.loads(argument)
                recorder.set_ending(Ending(fields["status"], fields["detail"]), fields["at"])
        elif command == "console":
            if recorder is not None:
                recorder.set_console(Console(*json.loads(argument)))
        else:
            stop_token.stop()
    # Elsewhere, the end of the process is noticed by itself: it may have replaced its program.
    if sys.platform == "win32":
        _end_with_process(control, options)


def _stdin_lines() -> Iterator[str]:
    """Yield complete lines, read without `sys.stdin`: its lock would be held when we exit."""
    pending = b""
    while sys.stdin is not None and (read := os.read(sys.stdin.fileno(), READ_BYTES)):
        *lines, pending = (pending + read).split(b"\n")
        yield from (line.decode() for line in lines)


def _report_look(recorder: Recorder | None, name: str, summary: Summary) -> None:
    if recorder is not None:  # the parent may be about to end, and this process with it
        recorder.flush(STATUS_SECONDS_MAX)
    with ignore_broken_pipe():
        print_json({"event": "looked", "look": name, **summary.as_json()})


def _write_to_log(options: argparse.Namespace) -> None:
    """Append all further output to `follow.log` beside the config file: nobody reads the pipes."""
    path = config_path(os.environ).with_name("follow.log")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    title = f"{now} process {options.end_with_process} has ended; {options.logdir}:\n"
    try:
        log = _open_log(path)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(title)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(log, stream.fileno(), inheritable=False)
    os.close(log)


def _open_log(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if os.fstat(log).st_size > LOG_BYTES_MAX:
        os.ftruncate(log, 0)
    return log
