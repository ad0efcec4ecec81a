"""What can go wrong in the uploader, as a tree.

UploadError
├── ReadError            one event file cannot be read as it is
│   ├── NotAnEventFile   its first bytes are no record: leave the file alone, say so
│   ├── CorruptRecord    a length fails its checksum: nothing after that offset can be framed
│   └── FileReplaced     truncated or replaced under its name: rewind, and start a new generation of the stream
├── LogdirError          there is no such logdir, or nothing in it
├── OutputError          a file of an export cannot be written
├── UsageError           the command or a setting is not what it has to be
└── ServerError          the server cannot be used as asked
    ├── Refused          it answered, and asking again would not help
    │   ├── Conflict     its state is another one: go back to where it says
    │   └── BlobLost     it has a point, and has lost the bytes of its blob
    └── Unreachable      no good answer in the time given: try again later, nothing is lost
        └── Unreadable   it fails to read some objects, and was waited for: ask for them again
"""

from __future__ import annotations

from pathlib import Path


class UploadError(Exception):
    """Anything the uploader can say in one line and end with an exit code for."""


class ReadError(UploadError):
    """An event file cannot be read further as it is now; other files are not affected."""

    def __init__(self, path: Path, explanation: str) -> None:
        super().__init__(f"{path}: {explanation}")
        self.path = path


class NotAnEventFile(ReadError):
    """The file does not begin with a TFRecord header: it is something else, whatever its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "is not an event file (its first bytes are not a record)")


class CorruptRecord(ReadError):
    """The length of the record at `offset` (bytes) fails its checksum: where the next record begins cannot be known."""

    def __init__(self, path: Path, offset: int) -> None:
        super().__init__(
            path, f"the record at byte {offset:,} is corrupt, and nothing after it can be read"
        )
        self.offset = offset


class FileReplaced(ReadError):
    """The file is shorter than what was read of it, or holds other bytes: it was truncated or replaced.

    The caller may `rewind` the file and send it again as a new generation of its stream.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "was truncated or replaced since it was last read")


class LogdirError(UploadError):
    """There is no such logdir, or nothing in it that could be uploaded."""


class OutputError(UploadError):
    """A file cannot be written: the disk is full, or the place is not ours. What was whole before stays."""


class UsageError(UploadError):
    """The command or a setting is not what it has to be; the message says what to change."""


class ServerError(UploadError):
    """The server cannot be used as asked."""


class Unreachable(ServerError):
    """No good answer came in the time given. Everything committed stays; the same command may be run again later.

    `is_in_the_middle` when an answer had begun, and broke off: asking once more may help at once.
    """

    def __init__(self, explanation: str, *, is_mid_response: bool = False) -> None:
        super().__init__(explanation)
        self.is_mid_response = is_mid_response


class Unreadable(Unreachable):
    """The server's object store fails to read some objects; it was waited for, and may be asked again now."""

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation, is_mid_response=True)


class Refused(ServerError):
    """The server answered with an HTTP error that repeating the request would not change."""

    def __init__(self, explanation: str, *, status: int, code: str = "") -> None:
        super().__init__(explanation)
        self.status = status
        self.code = code


class Conflict(Refused):
    """409 on a batch: `segment` (its index) does not go on where its stream's cursor is, or lacks its metadata.

    `offset` (bytes) and `checksum` are the cursor's; None when the server did not say, as with `metadata_missing`.
    """

    def __init__(
        self,
        explanation: str,
        *,
        code: str,
        segment: int | None,
        offset: int | None,
        checksum: int | None,
    ) -> None:
        super().__init__(explanation, status=409, code=code)
        self.segment = segment
        self.offset = offset
        self.checksum = checksum


class BlobLost(Refused):
    """The server's object store has lost the bytes of a blob, fails to read them, or has others in their place."""

    def __init__(self, explanation: str) -> None:
        super().__init__(explanation, status=410, code="object_missing")
