"""The terminal of `tbservice up`: the person there asks for something by the Enter key."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

_LINE_BYTES_MAX: Final = 4096
_BACKGROUND_SECONDS: Final = 1.0
"""Seconds between two looks whether the process is in the foreground of its terminal again."""


def is_interactive() -> bool:
    """Return whether a person can type something here."""
    return sys.stdin is not None and sys.stdin.isatty()


def on_enter(action: Callable[[], None]) -> None:
    """Call `action` in a thread of its own for each line typed, until the terminal is gone.

    An error of the action is printed; it ends nothing.
    """
    # To read as a background process would stop all of it (POSIX, 11.1.4): there, it fails instead.
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(sys.stdin.fileno(), action), daemon=True).start()


def _watch(terminal: int, action: Callable[[], None]) -> None:
    try:
        while True:
            select.select([terminal], [], [])
            if os.tcgetpgrp(terminal) != os.getpgrp():  # what is typed is for another process
                time.sleep(_BACKGROUND_SECONDS)
            elif not os.read(terminal, _LINE_BYTES_MAX):
                return
            else:
                _run(action)
    except OSError:
        return


def _run(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the servers may be stopping
        print(f"tbservice: {error}", file=sys.stderr, flush=True)  # noqa: T201 - to the person there
