"""Ctrl-C and SIGTERM of an upload: the first one ends it in order, the second one at once."""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

from tbupload.commands.exit_codes import EXIT_TEMPORARY_FAILURE
from tbupload.console.progress import ConsoleProgress
from tbupload.console.terminal import write_raw
from tbupload.http.cancellation import STOP_GRACE_SECONDS, StopToken
from tbupload.upload.follow_control import FollowControl

CLEAR_LIVE_LINES: Final = b"\r\x1b[J"
"""Moves to the start of the line and erases to the end: the progress lines and an echoed `^C`."""


@contextlib.contextmanager
def stop_on_signals(
    stop_token: StopToken, control: FollowControl | None, progress: ConsoleProgress
) -> Iterator[None]:
    """Stop gracefully on the first Ctrl-C or SIGTERM during the block, and exit on the second."""
    is_stop_requested = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_stop_requested
        # The main thread may hold the console's lock when the signal arrives: write without it.
        clear = CLEAR_LIVE_LINES if progress.is_live else b""
        if is_stop_requested:
            # sys.exit would wait for the requests of other threads.
            write_raw(clear + b"tbupload: stopped at once; committed data is kept\n")
            os._exit(EXIT_TEMPORARY_FAILURE)
        is_stop_requested = True
        if number == signal.SIGTERM and control is not None:
            control.hurry()
        else:
            stop_token.stop(STOP_GRACE_SECONDS if number == signal.SIGTERM else math.inf)
        if progress.shows_info:
            write_raw(clear + b"stopping after sending what is there now; repeat to stop at once\n")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
