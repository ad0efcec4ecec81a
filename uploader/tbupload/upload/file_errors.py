"""The errors of one event file, and whether they are confirmed.

Data written over a network file system arrives in any order, and many errors pass: an error counts
when it is still there after a time.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tbupload.errors import CorruptRecord, NotAnEventFile, ReadError
from tbupload.events.tf_record import HEADER_BYTES

CONFIRM_SECONDS: Final = 3.0
"""Time that damage or an I/O error has to last before it is confirmed."""

CONFIRM_REPLACED_SECONDS: Final = 1.0
"""Delay for a replaced file: on NFS a new size may be visible before the new content is."""

ZERO_FILL_SECONDS: Final = 60.0
"""Delay for zeros in place of a record's header, with other bytes after them.

Pages of a file written over NFS may arrive out of order; 60 s is the default `acregmax` of nfs(5),
the longest time that attributes stay cached.
"""

ZERO_FILL_BYTES: Final = 1 << 20
"""Zeros up to the end of the file, or this many, are space allocated for records to come."""

CONFLICTS_MAX: Final = 50
"""Conflicts of a file with nothing committed in between, after which it is given up."""

REFUSED: Final = "file refused by the server"
RUN_DELETED: Final = "file of a run that was deleted on the server"
"""Kinds of errors of files that are given up."""

_TRANSIENT_ERRNOS: Final = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENOMEM}
)
"""Errors of (network) file systems that often do not occur again."""


@dataclass(frozen=True)
class FileError:
    """Why a file cannot be sent (further): the kind of error, and a sentence with the path."""

    kind: str
    explanation: str


@dataclass(frozen=True)
class _Unconfirmed:
    """An error that is not confirmed, and when it will be (seconds of the clock)."""

    what: object
    until: float


class ErrorDebouncer:
    """The error of one file, confirmed before it counts, and whether the file was given up.

    Args:
        path: The file.
        is_final: Whether nothing is written to it any more; then errors need no confirmation.
        clock: A monotonic clock in seconds.
    """

    __slots__ = (
        "_clock",
        "_conflicts",
        "_is_final",
        "_path",
        "_unconfirmed",
        "error",
        "is_given_up",
    )

    def __init__(self, path: Path, *, is_final: bool, clock: Callable[[], float]) -> None:
        self.error: FileError | None = None
        self.is_given_up = False
        self._path = path
        self._is_final = is_final
        self._clock = clock
        self._conflicts = 0
        self._unconfirmed: _Unconfirmed | None = None

    @property
    def has_unconfirmed(self) -> bool:
        """Return whether an error was found that may pass, also when its time is over."""
        return self._unconfirmed is not None

    def was_unconfirmed_at(self, seconds: float) -> bool:
        """Return whether an error was waiting for confirmation at this time of the clock."""
        return self._unconfirmed is not None and seconds < self._unconfirmed.until

    def record_replacement(self) -> bool:
        """Record that the file seems replaced; return whether that has to be confirmed first."""
        return self._needs_confirmation("replaced", CONFIRM_REPLACED_SECONDS)

    def record_damage(self, offset: int) -> bool:
        """Record damage in the chunk at `offset`; return whether that has to be confirmed first."""
        self.error = None
        return self._needs_confirmation(("damaged", offset), CONFIRM_SECONDS)

    def record_error(self, error: ReadError | OSError) -> None:
        """Record that the file cannot be read now.

        A transient error is unconfirmed, and so is a corrupt record: it may be complete later.
        Space allocated for records to come is no error.
        """
        self.error = _file_error(self._path, error)

        if isinstance(error, OSError):
            if error.errno in _TRANSIENT_ERRNOS:
                self._is_unconfirmed("unreadable", CONFIRM_SECONDS)
        elif isinstance(error, (CorruptRecord, NotAnEventFile)) and not self._is_final:
            offset = error.offset if isinstance(error, CorruptRecord) else 0
            has_header, is_empty = self._inspect_zero_fill(offset)
            if is_empty:
                self.error = self._unconfirmed = None
            else:
                self._is_unconfirmed(
                    ("corrupt", offset), CONFIRM_SECONDS if has_header else ZERO_FILL_SECONDS
                )

    def clear(self) -> None:
        """Record that the file was read without an error."""
        self.error = self._unconfirmed = None

    def count_conflict(self) -> bool:
        """Count a conflict; return whether there are too many."""
        self._conflicts += 1
        return self._conflicts > CONFLICTS_MAX

    def clear_conflicts(self) -> None:
        """Start counting conflicts again: the server has committed something."""
        self._conflicts = 0

    def give_up(self, explanation: str, kind: str = REFUSED) -> None:
        """Record that nothing more of the file is sent in this upload."""
        self.is_given_up = True
        self.error = FileError(kind, f"{self._path}: {explanation}")

    def _needs_confirmation(self, what: object, seconds: float) -> bool:
        return not self._is_final and self._is_unconfirmed(what, seconds)

    def _is_unconfirmed(self, what: object, seconds: float) -> bool:
        """Return whether an error has lasted less than this time; another one starts a new time."""
        now = self._clock()
        if self._unconfirmed is None or self._unconfirmed.what != what:
            self._unconfirmed = _Unconfirmed(what, now + seconds)
        return now < self._unconfirmed.until

    def _inspect_zero_fill(self, offset: int) -> tuple[bool, bool]:
        """Return whether the header of the record at `offset` is not zero, and whether all is zero.

        "All" are the next ZERO_FILL_BYTES. A header is a record's length and its checksum
        (`tensorflow/core/lib/io/record_writer.h`); an empty record's is not zero, as its masked
        CRC32C is not.
        """
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                content = file.read(ZERO_FILL_BYTES)
        except OSError:
            return True, False
        return bool(content[:HEADER_BYTES].strip(b"\0")), not content.strip(b"\0")


def run_deleted_text(run: str) -> str:
    """Return why nothing of a run is sent, and what to do about it."""
    return (
        f"run {run!r} was deleted on the server, so it is not uploaded again; "
        "--upload-deleted-runs uploads it again, --new all runs to another experiment"
    )


def _file_error(path: Path, error: ReadError | OSError) -> FileError:
    if isinstance(error, NotAnEventFile):
        return FileError("file that is no event file", str(error))
    if isinstance(error, CorruptRecord):
        return FileError("corrupt file", str(error))
    if isinstance(error, OSError):
        return FileError("unreadable file", f"{path}: {error.strerror or error}")
    return FileError("unreadable file", str(error))
