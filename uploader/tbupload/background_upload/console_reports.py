"""The console of a training: what this process prints, and the reports of it to an uploader."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

from tbupload.recording.console_tail import TEXT_BYTES_MAX, ConsoleTail

if TYPE_CHECKING:
    from tbupload.background_upload.process import UploaderProcess

REPORT_SECONDS: Final = 10.0
"""Shortest time between two reports, except for the last one: each replaces the text before."""

CHECK_SECONDS: Final = 1.0
"""Interval of the checks whether something was printed."""

FINISH_SECONDS_MAX: Final = 2.0
"""How long the end of a training waits for the last report: an uploader may hang."""

_captured: Final[dict[int, ConsoleTail]] = {}
"""The console of this process, by its id: not that of a fork."""


class ConsoleReports(threading.Thread):
    """Reports a console to an uploader: within a second, then every 10 s, and at the end."""

    def __init__(self, tail: ConsoleTail, process: UploaderProcess) -> None:
        super().__init__(name="console reports", daemon=True)
        self._tail = tail
        self._process = process
        self._is_closing = threading.Event()
        self._reported = 0

    def run(self) -> None:
        """Report until the uploader has ended, or `finish` is called."""
        reported_at = -REPORT_SECONDS
        while not self._is_closing.wait(CHECK_SECONDS) and self._process.is_running:
            if time.monotonic() - reported_at >= REPORT_SECONDS and self._report():
                reported_at = time.monotonic()
        self._report()

    def finish(self) -> None:
        """Report what was printed since, and end; wait for that at most for FINISH_SECONDS_MAX."""
        self._is_closing.set()
        self.join(FINISH_SECONDS_MAX)

    def _report(self) -> bool:
        """Report the console if it has changed; return whether it had."""
        fed = self._tail.fed
        if fed == self._reported:
            return False
        self._reported = fed
        self._process.report_console(self._tail.read())
        return True


def capture_console(lines_max: int) -> ConsoleTail:
    """Return the last lines of `sys.stdout` and `sys.stderr` of this process, since the first call.

    The streams write as before, and keep their identity: loggers and progress bars that have them
    already are captured too. Output of other programs, and of libraries below Python, is not.
    """
    tail = _captured.get(os.getpid())
    if tail is None:
        tail = _captured[os.getpid()] = ConsoleTail(lines_max)
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            # Without a console there is no stream; one may be an object that cannot be changed.
            if stream is not None:
                with contextlib.suppress(AttributeError, TypeError):
                    _copy_writes(stream, partial(_feed, tail, number, os.getpid()))
    tail.grow(lines_max)
    return tail


def _copy_writes(stream: TextIO, feed: partial[None]) -> None:
    write = stream.write

    def write_and_feed(text: str, /) -> int:
        count = write(text)
        feed(text)
        return count

    stream.write = write_and_feed  # type: ignore[method-assign]  # of this object alone


def _feed(tail: ConsoleTail, number: int, process_id: int, text: str) -> None:
    # In a fork, the lock may be held for ever. Nothing here may be an error of the training.
    if os.getpid() == process_id:
        with contextlib.suppress(Exception):
            tail.feed(number, text[-TEXT_BYTES_MAX:].encode("utf-8", "replace"))
