"""The uploaders of this process: which one a call joins, which ones end, and the script's exit."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.background_upload.console_reports import ConsoleReports, capture_console
from tbupload.background_upload.open_writers import flush_open_writers
from tbupload.background_upload.process import UploaderProcess, logger, signals_blocked
from tbupload.background_upload.result import Result
from tbupload.console.terminal import escape
from tbupload.recording.exit_status import FINISHED, RUNNING, Ending, note_exit, noted_ending
from tbupload.remote_files import make_path

RETIRED_QUIET_SECONDS: Final = 300.0
"""How long files must be unchanged before an earlier uploader of this process ends.

Longer than the 120 s for which writers hold data by default.
"""

EXIT_SECONDS: Final = 60.0
"""How long the script waits at its exit where the uploader would end with it."""

ANSWER_SECONDS: Final = 10.0
"""How long of that it waits for a server that has never answered, unless it is told how long."""

TOLD_WAIT_SECONDS: Final = 2.0
"""How long the script waits at its exit before it says so."""

BATCH_VARIABLES: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")
"""Environment variables of batch jobs, whose processes are ended with them."""

SYSTEM_INITS: Final = ("systemd", "init", "runit", "s6-svscan", "openrc-init")
"""How names of process 1 begin where it does not end before the machine is shut down."""

INIT_NAME: Final = Path("/proc/1/comm")
"""The file with the name of process 1, on Linux."""

NEW_OPTIONS: Final = frozenset({"--new", "--resume=never"})
"""Options that create an experiment with each call."""

START_VARIABLES: Final = ("TBHUB_SERVER", "TBHUB_TOKEN", "TBHUB_CONFIG", "TBHUB_PROFILE")

_uploaders: Final[list[Uploader]] = []
_lock: Final = threading.Lock()


@dataclass(eq=False)
class Uploader:
    """An uploader process and what was asked for; `has_left` its block, if it has one.

    `exit_seconds` is the longest time that the script waits for it at its exit; `answer_seconds`
    that for the first answer of the server; `console` reports what the script prints.
    """

    process: UploaderProcess
    key: tuple[object, ...]
    logdir: str
    exit_seconds: float
    answer_seconds: float
    has_left: bool = False
    console: ConsoleReports | None = None


def start(
    options: list[str],
    token: str | None,
    logdir: str,
    exit_seconds: float | None,
    console_lines: int = 0,
) -> Uploader:
    """Return the running uploader of this process with the same options, or start one.

    Earlier ones whose block was left are told to end: of the same directory at once, so that what
    is written from now on is sent to the new experiment only; others when their files are quiet.
    With `console_lines`, so many last lines of what the script prints are recorded.
    """
    _install_exit()
    logdir = str(make_path(os.fspath(logdir)).absolute())
    key = (*options, token, logdir, *map(os.environ.get, START_VARIABLES))
    answer_seconds = ANSWER_SECONDS if exit_seconds is None else exit_seconds
    if exit_seconds is None:
        exit_seconds = default_exit_seconds(os.environ, INIT_NAME)
    with _lock:
        _uploaders[:] = [each for each in _uploaders if each.process.is_running]
        for each in _uploaders:
            if each.key == key and not NEW_OPTIONS.intersection(options):
                each.exit_seconds = max(each.exit_seconds, exit_seconds)
                each.answer_seconds = max(each.answer_seconds, answer_seconds)
                rejoin(each)
                report_console(each, console_lines)
                return each
        for each in _uploaders:
            if each.has_left:
                each.process.retire(0.0 if each.logdir == logdir else RETIRED_QUIET_SECONDS)
        process = UploaderProcess(options, token)
        uploader = Uploader(process, key, logdir, exit_seconds, answer_seconds)
        _uploaders.append(uploader)
        report_console(uploader, console_lines)
        return uploader


def report_console(uploader: Uploader, lines_max: int) -> None:
    """Record the last lines of what this process prints with an upload, from now on."""
    if not lines_max:
        return
    tail = capture_console(lines_max)
    if uploader.console is None:
        uploader.console = ConsoleReports(tail, uploader.process)
        with signals_blocked():
            uploader.console.start()


def default_exit_seconds(environment: Mapping[str, str], init: Path) -> float:
    """Return EXIT_SECONDS where the uploader would be killed with this process, else 0.

    `init` is the file with the name of process 1. In a container that is the script itself, or a
    shell or a small init that ends with it.
    """
    if any(name in environment for name in BATCH_VARIABLES):
        return EXIT_SECONDS
    try:
        name = init.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    return 0.0 if name.startswith(SYSTEM_INITS) else EXIT_SECONDS


def flush_writers() -> bool:
    """Flush the open writers of this process; log those that fail, and return whether none did."""
    problems = flush_open_writers()
    for problem in problems:
        logger.warning("tbupload: %s; its latest data is not in the files yet", escape(problem))
    return not problems


def log_result(result: Result) -> None:
    """Log that everything is uploaded, or why not unless the uploader has logged that itself."""
    if result.is_complete:
        logger.info("tbupload: everything is uploaded: %s", escape(result.url or ""))
    elif result.is_growing and result.explanation:
        logger.warning("tbupload: %s", escape(result.explanation))
    elif result.is_growing:
        logger.info("tbupload: uploaded what the files contained; they are still growing")
    elif result.exit_code is None or result.exit_code < 0:
        logger.warning("tbupload: %s", escape(result.explanation))


@functools.cache
def _install_exit() -> None:
    note_exit()
    # Not in a finalizer: at exit, threads and pipes still work in atexit functions.
    atexit.register(_exit)


def rejoin(uploader: Uploader) -> None:
    """Note that the training continues, if the block of an uploader was left."""
    if uploader.has_left:
        uploader.has_left = False
        uploader.process.report_ending(RUNNING)


def leave(uploader: Uploader, ending: Ending) -> None:
    """Note that the block of an uploader was left, and how."""
    uploader.has_left = True
    uploader.process.report_ending(ending)


def _exit() -> None:
    """Flush the writers once more, and wait for the uploaders that would be killed."""
    running = [each for each in _uploaders if each.process.is_running]
    if not running:
        return
    ending = noted_ending()
    for each in running:
        if each.console is not None:
            each.console.finish()
        # A block was left before: that it ended well is not all, if it was the last one.
        if not each.has_left or (each is running[-1] and ending != FINISHED):
            each.process.report_ending(ending)
    try:
        flush_writers()
        waited = [each for each in running if each.exit_seconds > 0]
        wait_for_all(waited, "end_seconds of follow")
    except KeyboardInterrupt:
        logger.warning("tbupload: interrupted; the rest is sent in the background")


def wait_for_all(uploaders: list[Uploader], limit_name: str) -> list[Result]:
    """Wait until each uploader has committed all that is in its files now; log and return results.

    `limit_name` is what sets the longest time that is waited, as the user knows it.
    """
    results = []
    began = time.monotonic()
    # All are asked before the first is waited for: they look at the same time.
    looks = [each.process.request_look() for each in uploaders]
    for each, look in zip(uploaders, looks):
        end = began + each.exit_seconds
        result = each.process.wait_for_look(look, min(end - began, TOLD_WAIT_SECONDS))
        rest = end - time.monotonic()
        if result.exit_code is None and rest > 0:
            is_known = each.process.has_experiment
            logger.warning(
                "tbupload: waiting up to %.0f s %s (%s); Ctrl-C ends the wait",
                rest if is_known else min(rest, each.answer_seconds),
                "until everything is uploaded" if is_known else "for the server to answer",
                limit_name,
            )
            result = each.process.wait_for_look(look, rest, each.answer_seconds, began)
        log_result(result)
        results.append(result)
    return results
