"""`tbupload run`: runs a command, uploads what it writes beside it, and records how it ends."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from tbupload.background_upload.console_reports import ConsoleReports
from tbupload.background_upload.process import UploaderProcess, signals_blocked
from tbupload.background_upload.result import Result
from tbupload.background_upload.uploaders import ANSWER_SECONDS, Uploader, wait_for_all
from tbupload.commands.options.run import LOGDIR_VARIABLE
from tbupload.commands.running.child_process import ForwardedSignals
from tbupload.commands.running.output_copy import OutputCopy
from tbupload.commands.uploading.check_options import check_options
from tbupload.console.output import print_message
from tbupload.errors import UsageError
from tbupload.recording.announcement import announce
from tbupload.recording.console_tail import ConsoleTail
from tbupload.recording.exit_status import ending_of_wait_status
from tbupload.recording.metrics_options import require_psutil
from tbupload.recording.opt_out import records_nothing
from tbupload.recording.script import describe_command

EXIT_NOT_FOUND: Final = 127
EXIT_NOT_RUNNABLE: Final = 126
"""Exit codes of a shell for a command that it does not find, or cannot run: POSIX, XCU 2.8.2."""

SIGNAL_EXIT: Final = 128
"""Number that a shell adds to that of the signal that has killed a command."""

STOP_SECONDS: Final = 10.0
"""How long the uploader may take to exit once everything is committed."""

OWN_OPTIONS: Final = frozenset({"console", "end_seconds", "json", "verbose", "quiet"})
"""Options that are not passed on to the uploader."""

EXAMPLE: Final = "tbupload run --logdir runs -- python train.py"


def run(options: argparse.Namespace) -> int:
    """Run `tbupload run`; return the exit code of the command, whatever the upload does."""
    _check_options(options)
    tail = None if options.console is None else ConsoleTail(options.console)
    signals, copy = ForwardedSignals(), OutputCopy()
    try:
        child = _start(options.behind_dashes, has_pipes=tail is not None)
    except FileNotFoundError as error:
        return _report_unstarted(error, options, EXIT_NOT_FOUND)
    except OSError as error:
        return _report_unstarted(error, options, EXIT_NOT_RUNNABLE)

    if tail is not None:
        _copy_output(child, copy, tail)
    upload = _BesideUpload(options, tail)
    try:
        code = signals.wait_for(child)
        copy.finish()
        upload.finish(code)
    except KeyboardInterrupt:
        upload.report_interrupted()
    signals.ignore()
    code = child.returncode
    return code if code >= 0 else SIGNAL_EXIT - code


def _check_options(options: argparse.Namespace) -> None:
    """Raise UsageError for what is wrong before the command is started."""
    if sys.platform == "win32":
        raise UsageError("tbupload run needs Linux or macOS; use tbupload.follow() in the script")
    if not options.behind_dashes:
        raise UsageError(f"there is no command: put it behind --, as in `{EXAMPLE}`")
    if options.logdir is None:
        raise UsageError(f"no log directory: use --logdir, or set {LOGDIR_VARIABLE}")
    if options.json:
        raise UsageError("--json: stdout is that of the command; messages go to stderr")
    # Not one in an object store, which may take long to answer.
    if isinstance(options.logdir, Path) and options.logdir.expanduser().is_file():
        raise UsageError(f"{options.logdir} is a file: a log directory contains the runs")
    check_options(options)
    if options.system_metrics is not None:
        require_psutil()
    for option in ("console", "git_diff"):
        if options.no_origin and getattr(options, option):
            raise UsageError(f"--no-origin and --{option.replace('_', '-')} exclude each other")


def _start(command: list[str], *, has_pipes: bool) -> subprocess.Popen[bytes]:
    """Start the command in this process group. Raise OSError."""
    if not has_pipes:
        return subprocess.Popen(command)
    environment = dict(os.environ)
    if sys.stdout.isatty():
        # Without a terminal, Python would hold its output back until a buffer is full.
        environment.setdefault("PYTHONUNBUFFERED", "1")
    return subprocess.Popen(
        command, env=environment, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _copy_output(child: subprocess.Popen[bytes], copy: OutputCopy, tail: ConsoleTail) -> None:
    for number, pipe in ((1, child.stdout), (2, child.stderr)):
        assert pipe is not None  # noqa: S101 - it was asked for
        with signals_blocked():
            copy.start(os.dup(pipe.fileno()), number, partial(tail.feed, number))
        pipe.close()


def _report_unstarted(error: OSError, options: argparse.Namespace, code: int) -> int:
    name = options.behind_dashes[0]
    print_message(f"tbupload: {shlex.quote(name)} cannot be run: {error.strerror}")
    return code


class _BesideUpload:
    """The upload beside the command; nothing of it raises."""

    def __init__(self, options: argparse.Namespace, tail: ConsoleTail | None) -> None:
        self._options = options
        self._process: UploaderProcess | None = None
        self._console: ConsoleReports | None = None
        if not records_nothing(os.environ, no_origin=options.no_origin):
            announce(self._say, is_script=False, is_training=True)
        elif options.console or options.git_diff:
            self._warn("TBHUB_NO_ORIGIN, or no_origin in the config file: nothing is recorded")
        script = describe_command(options.behind_dashes)
        try:
            self._process = UploaderProcess(_uploader_options(options), None, script)
        except (OSError, ValueError, RuntimeError) as error:
            self._warn(f"nothing is uploaded: the uploader could not be started: {error}")
            return
        with signals_blocked():
            threading.Thread(target=self._tell_url, name="URL", daemon=True).start()
            if tail is not None:
                self._console = ConsoleReports(tail, self._process)
                self._console.start()

    def finish(self, code: int) -> None:
        """Record how the command ended, and wait until everything is uploaded."""
        process = self._process
        if process is None:
            return
        if self._console is not None:
            self._console.finish()
        process.report_ending(ending_of_wait_status(-code if code < 0 else code << 8))
        seconds = self._options.end_seconds
        uploader = Uploader(process, (), "", seconds, min(seconds, ANSWER_SECONDS))
        (result,) = wait_for_all([uploader], "--end-seconds")
        if result.is_complete:
            process.request_stop()
            process.wait(STOP_SECONDS)
            self._say(f"everything is uploaded: {result.url}")
        else:
            self._report_rest(result)

    def report_interrupted(self) -> None:
        """Say that the upload is not waited for any more, and how to send the rest."""
        if self._process is not None:
            self._warn(self._process.wait(0).explanation)

    def _report_rest(self, result: Result) -> None:
        """Say what is left, unless `wait_for_all` has logged it."""
        if result.is_growing and not result.explanation:
            self._warn("files are still changing: the upload continues in the background")
        elif result.exit_code not in {0, None} and result.exit_code > 0:
            self._warn(result.explanation)

    def _tell_url(self) -> None:
        url = None if self._process is None else self._process.experiment_event().get("url")
        if url:
            self._say(f"uploading to {url}")

    def _say(self, sentence: str) -> None:
        if not self._options.quiet:
            self._warn(sentence)

    @staticmethod
    def _warn(sentence: str) -> None:
        print_message(f"tbupload: {sentence}")


def _uploader_options(options: argparse.Namespace) -> list[str]:
    """Return the options of the uploader, `--logdir` first, each in one argument."""
    names = [
        name
        for name in options.command_parser.destinations
        if name not in OWN_OPTIONS and getattr(options, name, None) is not None
    ]
    names.sort(key=lambda name: name != "logdir")
    return [text for name in names for text in _option_texts(name, getattr(options, name))]


def _option_texts(name: str, value: Any) -> list[str]:
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option] if value else []
    if isinstance(value, list):
        return [f"{option}={each}" for each in value]
    if isinstance(value, re.Pattern):
        value = value.pattern
    elif isinstance(value, frozenset):
        value = ",".join(sorted(value))
    return [f"{option}={value}"]
