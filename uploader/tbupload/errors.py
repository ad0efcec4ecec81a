"""Exceptions of the uploader, as a tree.

UploadError
├── ReadError            an event file cannot be read further
│   ├── NotAnEventFile   no TFRecord header at its start: skip the file and report it
│   ├── CorruptRecord    a record length fails its checksum: records after it cannot be located
│   └── FileReplaced     truncated or replaced: start a new generation of its stream
├── RunRetrained         a run was trained again: its points belong to another experiment
├── OutputError          a file of an export cannot be written
├── UsageError           wrong arguments or configuration
│   └── LogdirError      the log directory does not exist, or contains nothing to upload
└── ServerError          a request failed
    ├── Refused          the server rejected it; repeating the request does not help
    │   ├── Conflict     409 on a batch: resume from the server's upload cursor
    │   └── BlobLost     the server has a point, but no longer the bytes of its blob
    └── Unreachable      no valid response within the retry timeout; nothing is lost
        ├── Unreadable   the server could not read some objects: request them again
        └── QuotaExceeded  507: the workspace has no room until something is deleted, or allowed
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class UploadError(Exception):
    """Base of all errors; the message is one line, for people."""


class ReadError(UploadError):
    """An event file cannot be read further in its current state; other files are not affected."""

    def __init__(self, path: Path, explanation: str) -> None:
        super().__init__(f"{path}: {explanation}")
        self.path = path


class NotAnEventFile(ReadError):
    """The file does not begin with a TFRecord header: it is no event file, despite its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "is not an event file (its first bytes are not a record)")


class CorruptRecord(ReadError):
    """The length of the record at `offset` (in bytes) fails its checksum.

    The start of the next record is unknown, so nothing after `offset` can be read.
    """

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(
            path, f"the record at byte {offset:,} is corrupt, and nothing after it can be read"
        )
        self.offset = offset


class FileReplaced(ReadError):
    """The file was truncated or replaced: it is shorter than what was read, or has other bytes.

    The caller may `rewind` the file and send it again as a new generation of its stream.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "was truncated or replaced since it was last read")


class RunRetrained(UploadError):
    """The files of a run were replaced by those of another training, of which nothing was sent."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} was trained again from its start, into new files")
        self.run = run


class OutputError(UploadError):
    """A file cannot be written: disk full, or no permission. Complete files are not affected."""


class UsageError(UploadError):
    """Wrong arguments or configuration; the message says what to change."""


class LogdirError(UsageError):
    """The log directory does not exist, or contains nothing that can be uploaded."""


class ServerError(UploadError):
    """A request to the server failed."""


class Unreachable(ServerError):
    """No valid response within the retry timeout; it is safe to retry later: nothing is lost.

    `is_mid_response` is True if a response began and broke off: an immediate retry may succeed.
    """

    def __init__(self, explanation: str, *, is_mid_response: bool = False) -> None:
        super().__init__(explanation)
        self.is_mid_response = is_mid_response


class Unreadable(Unreachable):
    """The server's object store failed to read some objects; the caller may request them again."""

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation, is_mid_response=True)


class QuotaExceeded(Unreachable):
    """The workspace has no room for what was sent. Nothing of it was stored.

    An upload that is begun again later sends the rest, as after an outage.
    """


class Refused(ServerError):
    """The server responded with an HTTP error that repeating the request would not change."""

    def __init__(self, explanation: str, *, status: int, code: str = "") -> None:
        super().__init__(explanation)
        self.status = status
        self.code = code


class Conflict(Refused):
    """409 on a batch: a segment does not start at its stream's cursor, or lacks metadata.

    `segment` is its index in the batch; with the code `run_deleted`, `segments` are those of all
    segments of runs that were deleted. `offset` (bytes) and `checksum` are those of the stream's
    upload cursor; None if the response has none, as with code `blob_missing` or `try_again`.
    """

    def __init__(
        self,
        explanation: str,
        *,
        code: str,
        segment: int | None,
        offset: int | None,
        checksum: int | None,
        segments: Sequence[int] = (),
    ) -> None:
        super().__init__(explanation, status=409, code=code)
        self.segment = segment
        self.offset = offset
        self.checksum = checksum
        self.segments = segments


class BlobLost(Refused):
    """The bytes of a blob are missing from the object store, unreadable, or have another digest."""

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation, status=410, code="object_missing")
