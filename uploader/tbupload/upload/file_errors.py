"""What is wrong with a file, and whether to believe it yet: what is written over a network arrives in any order."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.errors import CorruptRecord, NotAnEventFile, ReadError
from tbupload.events.framing import HEADER_BYTES

DOUBT_SECONDS: Final = 3.0
"""How long damage has to be there before it is believed: over a network, bytes arrive in any order, and errors pass."""

REPLACED_SECONDS: Final = 1.0
"""The same for a file that seems to be another one: its size may be told before or after its bytes."""

HOLE_SECONDS: Final = 60.0
"""The same where zeros stand instead of a record, and other bytes after them: as long as NFS caches may be behind."""

HOLE_BYTES: Final = 1 << 20
"""Zeros of this many bytes, or up to the end of the file, are room that was made for records to come."""

_PASSING: Final = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENOMEM})
"""Errors of file systems that are often gone the next time."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a file cannot be sent (further): the sort of thing it is, and a sentence with its path."""

    kind: str
    explanation: str


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What is not believed yet, and until when (seconds of the clock)."""

    what: object
    until: float


class Doubts:
    """The trouble of one file, and what is not believed of it yet. `is_final` says that nobody is writing it any more.

    `clock` gives seconds.
    """

    __slots__ = ("_clock", "_doubt", "_is_final", "_path", "trouble")

    def __init__(self, path: Path, *, is_final: bool, clock: Callable[[], float]) -> None:
        self.trouble: Trouble | None = None
        self._path = path
        self._is_final = is_final
        self._clock = clock
        self._doubt: _Doubt | None = None

    @property
    def are_open(self) -> bool:
        """Whether there is a doubt, be it one that has lasted its time."""
        return self._doubt is not None

    def are_open_at(self, seconds: float) -> bool:
        """Whether something was not believed at this time of the clock."""
        return self._doubt is not None and seconds < self._doubt.until

    def about(self, what: object, seconds: float) -> bool:
        """Whether to look at it once more before it is believed; no longer when it has been so for these seconds."""
        return not self._is_final and self._about(what, seconds)

    def end(self) -> None:
        """All is as it should be."""
        self._doubt = None

    def note(self, error: ReadError | OSError) -> None:
        """The file cannot be read now; what may pass is in doubt, and room that was made for records is no trouble."""
        self.trouble = _trouble(self._path, error)
        if isinstance(error, OSError):
            if error.errno in _PASSING:
                self._about("unreadable", DOUBT_SECONDS)
        elif isinstance(error, CorruptRecord | NotAnEventFile) and not self._is_final:
            offset = error.offset if isinstance(error, CorruptRecord) else 0
            header, is_empty = self._look_at_hole(offset)
            if is_empty:
                self.trouble = self._doubt = None
            else:
                self._about(("corrupt", offset), DOUBT_SECONDS if header else HOLE_SECONDS)

    def _about(self, what: object, seconds: float) -> bool:
        now = self._clock()
        if self._doubt is None or self._doubt.what != what:
            self._doubt = _Doubt(what, now + seconds)
        return now < self._doubt.until

    def _look_at_hole(self, offset: int) -> tuple[bool, bool]:
        """Whether something else than zeros stands where a record should begin, and whether only zeros are after it."""
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                content = file.read(HOLE_BYTES)
        except OSError:
            return True, False
        return bool(content[:HEADER_BYTES].strip(b"\0")), not content.strip(b"\0")


def _trouble(path: Path, error: ReadError | OSError) -> Trouble:
    if isinstance(error, NotAnEventFile):
        return Trouble("file that is no event file", str(error))
    if isinstance(error, CorruptRecord):
        return Trouble("corrupt file", str(error))
    if isinstance(error, OSError):
        return Trouble("unreadable file", f"{path}: {error.strerror or error}")
    return Trouble("unreadable file", str(error))
