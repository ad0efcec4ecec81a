"""The command of `tbupload run` as a child process: signals reach it, and its end is waited for."""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType
from typing import Final, NoReturn

FORWARDED: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
"""Names of signals that are passed on to the command."""


class ForwardedSignals:
    """Passes signals of this process on to a child, from its start on.

    Not those that the kernel sends, such as Ctrl-C in a terminal: they reach every process of the
    group, and a child that gets Ctrl-C twice may stop at once. A signal that is ignored when this
    process starts, as SIGHUP by nohup(1), stays so, for the child as well.
    """

    def __init__(self) -> None:
        numbers = {getattr(signal, name) for name in FORWARDED}
        self._numbers = {each for each in numbers if signal.getsignal(each) != signal.SIG_IGN}
        self._early: list[int] = []
        for number in self._numbers:
            signal.signal(number, self._note)
        # Ignored by default, and where it is ignored, some systems do not queue it.
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def wait_for(self, child: subprocess.Popen[bytes]) -> int:
        """Wait for the end of the child; return its code, negative if a signal has killed it."""
        waited = {*self._numbers, signal.SIGCHLD}
        # Blocked, so that none comes between a check and the wait.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
        try:
            for number in self._early:
                child.send_signal(number)
            while (code := child.poll()) is None:
                number, is_of_group = _next_signal(waited)
                if number != signal.SIGCHLD and not is_of_group:
                    child.send_signal(number)
        finally:
            # Signals that have come until now were for the child, and it has ended. The next one is
            # for what this process does then.
            while signal.sigpending() & self._numbers:
                signal.sigwait(self._numbers)
            for number in self._numbers:
                signal.signal(number, _interrupt)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return code

    def ignore(self) -> None:
        """Ignore the signals from now on: the exit code of this process is decided."""
        for number in self._numbers:
            signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        """Keep a signal from before the wait: the child may not be there yet."""
        self._early.append(number)


def _next_signal(waited: set[int]) -> tuple[int, bool]:
    """Return the next signal, and whether the whole process group gets it."""
    if hasattr(signal, "sigwaitinfo"):
        info = signal.sigwaitinfo(waited)
        # sigaction(2): above 0, it is sent by the kernel, as SI_KERNEL for a key of the terminal.
        return info.si_signo, info.si_code > 0
    number = signal.sigwait(waited)  # macOS
    return number, number in {signal.SIGINT, signal.SIGQUIT} and sys.stdin.isatty()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
