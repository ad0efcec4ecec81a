"""Ends an upload in order when the program that started it asks for it through stdin, or has died."""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import Final

from tbupload.http.cancellation import StopToken

PARENT_POLL_SECONDS: Final = 2.0
"""How often is looked whether the parent still lives: its other children may hold our stdin open after its death."""


def stop_on_stdin(stop_token: StopToken) -> None:
    """From now on anything on stdin, its end, or the parent's death asks for an orderly end."""
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
    if (
        sys.platform == "win32"
    ):  # which can only select from sockets, and tells nobody who adopted them
        os.read(descriptor, 1)
        return
    while (
        os.getppid() == parent and not select.select([descriptor], [], [], PARENT_POLL_SECONDS)[0]
    ):
        pass
