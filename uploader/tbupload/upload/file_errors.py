"""What is wrong with a file, and whether to believe it yet: what is written over a network arrives in any order."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.errors import CorruptRecord, NotAnEventFile, ReadError
from tbupload.events.tf_record import HEADER_BYTES

CONFIRM_SECONDS: Final = 3.0
"""How long damage has to be there before it is believed: over a network, bytes arrive in any order, and errors pass."""

CONFIRM_REPLACED_SECONDS: Final = 1.0
"""The same for a file that seems to be another one: its size may be told before or after its bytes."""

ZERO_FILL_SECONDS: Final = 60.0
"""The same where zeros stand instead of a record, and other bytes after them: as long as NFS caches may be behind."""

ZERO_FILL_BYTES: Final = 1 << 20
"""Zeros of this many bytes, or up to the end of the file, are room that was made for records to come."""

_TRANSIENT_ERRNOS: Final = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENOMEM}
)
"""Errors of file systems that are often gone the next time."""


@dataclass(frozen=True, slots=True)
class FileError:
    """Why a file cannot be sent (further): the sort of thing it is, and a sentence with its path."""

    kind: str
    explanation: str


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    """What is not believed yet, and until when (seconds of the clock)."""

    what: object
    until: float


class ErrorDebouncer:
    """The trouble of one file, and what is not believed of it yet. `is_final` says that nobody is writing it any more.

    `clock` gives seconds.
    """

    __slots__ = ("_clock", "_unconfirmed", "_is_final", "_path", "error")

    def __init__(self, path: Path, *, is_final: bool, clock: Callable[[], float]) -> None:
        self.error: FileError | None = None
        self._path = path
        self._is_final = is_final
        self._clock = clock
        self._unconfirmed: _Unconfirmed | None = None

    @property
    def has_unconfirmed(self) -> bool:
        """Whether there is a doubt, be it one that has lasted its time."""
        return self._unconfirmed is not None

    def was_unconfirmed_at(self, seconds: float) -> bool:
        """Whether something was not believed at this time of the clock."""
        return self._unconfirmed is not None and seconds < self._unconfirmed.until

    def needs_confirmation(self, what: object, seconds: float) -> bool:
        """Whether to look at it once more before it is believed; no longer when it has been so for these seconds."""
        return not self._is_final and self._is_unconfirmed(what, seconds)

    def end(self) -> None:
        """All is as it should be."""
        self._unconfirmed = None

    def record_error(self, error: ReadError | OSError) -> None:
        """The file cannot be read now; what may pass is in doubt, and room that was made for records is no trouble."""
        self.error = _file_error(self._path, error)
        if isinstance(error, OSError):
            if error.errno in _TRANSIENT_ERRNOS:
                self._is_unconfirmed("unreadable", CONFIRM_SECONDS)
        elif isinstance(error, CorruptRecord | NotAnEventFile) and not self._is_final:
            offset = error.offset if isinstance(error, CorruptRecord) else 0
            header, is_empty = self._inspect_zero_fill(offset)
            if is_empty:
                self.error = self._unconfirmed = None
            else:
                self._is_unconfirmed(
                    ("corrupt", offset), CONFIRM_SECONDS if header else ZERO_FILL_SECONDS
                )

    def _is_unconfirmed(self, what: object, seconds: float) -> bool:
        now = self._clock()
        if self._unconfirmed is None or self._unconfirmed.what != what:
            self._unconfirmed = _Unconfirmed(what, now + seconds)
        return now < self._unconfirmed.until

    def _inspect_zero_fill(self, offset: int) -> tuple[bool, bool]:
        """Whether something else than zeros stands where a record should begin, and whether only zeros are after it."""
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                content = file.read(ZERO_FILL_BYTES)
        except OSError:
            return True, False
        return bool(content[:HEADER_BYTES].strip(b"\0")), not content.strip(b"\0")


def _file_error(path: Path, error: ReadError | OSError) -> FileError:
    if isinstance(error, NotAnEventFile):
        return FileError("file that is no event file", str(error))
    if isinstance(error, CorruptRecord):
        return FileError("corrupt file", str(error))
    if isinstance(error, OSError):
        return FileError("unreadable file", f"{path}: {error.strerror or error}")
    return FileError("unreadable file", str(error))
