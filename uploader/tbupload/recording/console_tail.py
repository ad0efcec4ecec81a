"""The last lines that a command has printed, in bounded memory, and as they may be recorded."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import Final

from tbupload.recording.masked_text import mask_lines

TEXT_BYTES_MAX: Final = 16_000
"""Bytes (UTF-8) of a recorded text; a server accepts as many characters."""

LINES_DEFAULT: Final = 100
LINES_MAX: Final = 1_000
"""Lines of a console that are recorded, if so many fit."""

LINE_BYTES_MAX: Final = 1_000
"""Bytes of a line that are kept: its beginning, since names are before the secrets they tell."""

_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,100}[ -/]{0,10}[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)?|[ -/]{0,10}[0-~])"
)
"""Escape sequences of terminals: CSI, OSC, and the short ones (ECMA-48)."""


class ConsoleTail:
    """The last lines of several streams together, in the order in which they ended.

    `feed` and `text` may be called from any thread.
    """

    def __init__(self, lines_max: int) -> None:
        self._lines_max = lines_max
        self._lines: deque[bytes] = deque(maxlen=lines_max)
        self._unfinished: dict[int, bytes] = {}
        self._lock = threading.Lock()

    def feed(self, stream: int, chunk: bytes) -> None:
        """Take the next bytes of a stream, which is called by a number.

        What a program overwrites by a carriage return, as progress bars do, is not kept.
        """
        # Not all lines of the chunk: those before the last ones are not even split.
        first, *others = chunk.rsplit(b"\n", self._lines_max + 1)
        with self._lock:
            line = _shorten(self._unfinished.get(stream, b"") + first)
            for other in others:
                self._lines.append(line.rstrip(b"\r"))
                line = _shorten(other)
            self._unfinished[stream] = line

    def text(self) -> str:
        """Return the lines as they may be recorded, with secrets masked, in TEXT_BYTES_MAX."""
        with self._lock:
            unfinished = [line.rstrip(b"\r") for line in self._unfinished.values()]
            lines = [*self._lines, *filter(None, unfinished)][-self._lines_max :]
        return bound_lines(list(mask_lines(map(clean_line, lines))), is_tail=True)


def clean_line(line: bytes) -> str:
    """Return a line as text, without escape sequences and control characters."""
    text = line.decode("utf-8", "replace").expandtabs(8)
    return "".join(filter(str.isprintable, _ESCAPE.sub("", text)))


def bound_lines(lines: list[str], *, is_tail: bool) -> str:
    """Return the first or, as a tail, the last of the lines that fit in TEXT_BYTES_MAX.

    A line in place of the others says how many are left out.
    """
    room = TEXT_BYTES_MAX - 100  # for the line that says so
    kept: list[str] = []
    for line in reversed(lines) if is_tail else lines:
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            kept.append(f"... {len(lines) - len(kept):,} lines are left out")
            break
        kept.append(line)
    return "\n".join(reversed(kept) if is_tail else kept)


def _shorten(line: bytes) -> bytes:
    """Return the beginning of what a terminal shows of a line; a last carriage return is kept.

    It belongs to the end of the line if that comes next; otherwise, the line begins again.
    """
    end = b"\r" if line.endswith(b"\r") else b""
    body = line.rstrip(b"\r")
    return body[body.rfind(b"\r") + 1 :][:LINE_BYTES_MAX] + end
