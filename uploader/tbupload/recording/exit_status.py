"""How a training ends: by an exception of a script, or by the exit code of a process."""

from __future__ import annotations

import builtins
import functools
import signal
import sys
import threading
from dataclasses import dataclass
from typing import Any, Final, NoReturn

DETAIL_CHARS_MAX: Final = 200
"""Characters that say how it ended; a server accepts no more."""


@dataclass(frozen=True)
class Ending:
    """A status (running, finished, failed, killed, unknown) and what is known beyond it."""

    status: str
    detail: str = ""


RUNNING: Final = Ending("running")
FINISHED: Final = Ending("finished")
VANISHED: Final = Ending("unknown", "ended without saying how")


def ending_of_exception(kind: type[BaseException] | None, code: object = None) -> Ending:
    """Return how a block or a script ends that raises this; `code` is that of a SystemExit.

    Only the type of an exception is told: its text may contain anything.
    """
    if kind is None:
        return FINISHED
    if issubclass(kind, KeyboardInterrupt):
        return Ending("killed", "interrupted (SIGINT)")
    if issubclass(kind, SystemExit):
        if code is None or code == 0:
            return FINISHED
        return Ending("failed", f"exit code {code if isinstance(code, int) else 1}")
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return Ending("failed", f"{module}{kind.__qualname__}"[:DETAIL_CHARS_MAX])


def ending_of_wait_status(status: int) -> Ending:
    """Return how a process ended that has this status, as `os.wait` returns it."""
    number = status & 0x7F
    if number:
        try:
            return Ending("killed", signal.Signals(number).name)
        except ValueError:
            return Ending("killed", f"signal {number}")
    code = status >> 8
    return FINISHED if code == 0 else Ending("failed", f"exit code {code}")


_noted: Final[list[Ending]] = []


@functools.cache
def note_exit() -> None:
    """Note from now on what this script gives `sys.exit`, which Python tells nobody else.

    A `raise SystemExit` outside of a block is not seen; where the kernel tells the exit code of a
    process, the uploader learns it.
    """
    leave = sys.exit

    def exit_script(code: Any = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            _noted[:] = [ending_of_exception(SystemExit, code)]
        leave(code)

    sys.exit = exit_script


def noted_ending() -> Ending:
    """Return how this script ends, as far as that can be seen at its exit."""
    kind = getattr(sys, "last_type", None)  # set for an exception that nobody has caught
    is_interactive = hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")
    if isinstance(kind, type) and not is_interactive:
        return ending_of_exception(kind)
    return _noted[0] if _noted else FINISHED
