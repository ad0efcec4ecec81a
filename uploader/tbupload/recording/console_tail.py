"""The last lines that a command has printed, in bounded memory, and as they may be recorded."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from typing import Final, NamedTuple

from tbupload.recording.masked_text import mask_lines

TEXT_BYTES_MAX: Final = 16_000
"""Bytes (UTF-8) of a recorded text; a server accepts as many characters."""

MASKED_BYTES_MAX: Final = 4 * TEXT_BYTES_MAX
"""Bytes of lines in which secrets are looked for: 1 MB would take seconds of the training."""

LINES_DEFAULT: Final = 100
LINES_MAX: Final = 1_000
"""Lines of a console that are recorded, if so many fit."""

LINE_BYTES_MAX: Final = 1_000
"""Bytes of a line that are kept: its beginning, since names are before the secrets they tell."""

_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,100}[ -/]{0,10}[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)?|[ -/]{0,10}[0-~])"
)
"""Escape sequences of terminals: CSI, OSC, and the short ones (ECMA-48)."""


class Console(NamedTuple):
    """Lines as they may be recorded, and when each ended (epoch seconds, by this machine)."""

    text: str
    times: list[float]


class ConsoleTail:
    """The last lines of several streams together, in the order in which they ended.

    Its methods may be called from any thread. `fed` counts the chunks so far.
    """

    def __init__(self, lines_max: int) -> None:
        self.fed = 0
        self._lines_max = lines_max
        self._lines: deque[tuple[float, bytes]] = deque(maxlen=lines_max)
        self._unfinished: dict[int, bytes] = {}
        # A signal handler that prints may interrupt `feed` in its own thread.
        self._lock = threading.RLock()

    def grow(self, lines_max: int) -> None:
        """Keep at least so many lines from now on."""
        with self._lock:
            self._lines_max = max(self._lines_max, lines_max)
            self._lines = deque(self._lines, self._lines_max)

    def feed(self, stream: int, chunk: bytes) -> None:
        """Take the next bytes of a stream, which is called by a number.

        What a program overwrites by a carriage return, as progress bars do, is not kept.
        """
        # Not all lines of the chunk: those before the last ones are not even split.
        first, *others = chunk.rsplit(b"\n", self._lines_max + 1)
        now = time.time()
        with self._lock:
            line = _shorten(self._unfinished.get(stream, b"") + first)
            for other in others:
                self._lines.append((now, line.rstrip(b"\r")))
                line = _shorten(other)
            self._unfinished[stream] = line
            self.fed += 1

    def read(self) -> Console:
        """Return the lines as they may be recorded, with secrets masked, in TEXT_BYTES_MAX."""
        with self._lock:
            unfinished = [line.rstrip(b"\r") for line in self._unfinished.values()]
            now = time.time()
            timed = [*self._lines, *((now, line) for line in unfinished if line)]
        timed = timed[-self._lines_max :]
        room = MASKED_BYTES_MAX
        first = len(timed)
        while first and (room := room - len(timed[first - 1][1])) >= 0:
            first -= 1
        lines = list(mask_lines(clean_line(line) for _, line in timed[first:]))
        text = bound_lines(lines, is_tail=True, left_out=first)
        # The line that says how many are left out has the time of the last of them.
        count = text.count("\n") + 1 if timed else 0
        return Console(text, [round(ended, 3) for ended, _ in timed[-count:]] if count else [])


def clean_line(line: bytes) -> str:
    """Return a line as text, without escape sequences and control characters."""
    text = line.decode("utf-8", "replace").expandtabs(8)
    return "".join(filter(str.isprintable, _ESCAPE.sub("", text)))


def bound_lines(lines: list[str], *, is_tail: bool, left_out: int = 0) -> str:
    """Return the first or, as a tail, the last of the lines that fit in TEXT_BYTES_MAX.

    A line in place of the others, and of those `left_out` before, says how many they are.
    """
    room = TEXT_BYTES_MAX - 100  # for the line that says so
    kept: list[str] = []
    for line in reversed(lines) if is_tail else lines:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept.append(line)
    if left_out := left_out + len(lines) - len(kept):
        kept.append(f"... {left_out:,} lines are left out")
    return "\n".join(reversed(kept) if is_tail else kept)


def _shorten(line: bytes) -> bytes:
    """Return the beginning of what a terminal shows of a line; a last carriage return is kept.

    It belongs to the end of the line if that comes next; otherwise, the line begins again.
    """
    end = b"\r" if line.endswith(b"\r") else b""
    body = line.rstrip(b"\r")
    return body[body.rfind(b"\r") + 1 :][:LINE_BYTES_MAX] + end
