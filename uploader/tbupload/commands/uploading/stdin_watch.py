"""`--end-with-stdin`: stop an upload gracefully through stdin, or when the parent process exits."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Final

from tbupload.http.cancellation import StopToken

PARENT_POLL_SECONDS: Final = 2.0
"""Interval of the check that the parent lives: its other children may keep our stdin open."""


def stop_on_stdin(stop_token: StopToken) -> None:
    """Start a thread that requests an orderly stop on stdin data or EOF, or the parent's exit."""
    thread = threading.Thread(
        target=_wait_and_stop, args=(stop_token, os.getppid()), name="stdin", daemon=True
    )
    thread.start()


def _wait_and_stop(stop_token: StopToken, parent: int) -> None:
    try:
        _wait_for_stdin(parent)
    finally:
        stop_token.stop()


def _wait_for_stdin(parent: int) -> None:
    if sys.stdin is None:
        return
    descriptor = sys.stdin.fileno()
    # Windows can only select from sockets, and does not change the parent ID of orphans.
    if sys.platform == "win32":
        os.read(descriptor, 1)
        return
    while (
        os.getppid() == parent and not select.select([descriptor], [], [], PARENT_POLL_SECONDS)[0]
    ):
        pass
