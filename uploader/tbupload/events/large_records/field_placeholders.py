"""Placeholders for large fields of a record: protobuf reads them in place of the fields' bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tbupload.errors import FileReplaced
from tbupload.events.points import Blob, FileBlob

LOADED_TENSORS_BYTES_MAX: Final = 12 << 20
"""Tensors loaded of a long record; further ones are read when they are sent as objects."""

LOADED_TENSOR_BYTES_MIN: Final = 1 << 20
"""A tensor of a long record up to this size is always loaded: there may be many."""

_READ_BYTES: Final = 1 << 20
"""Bytes of a file that are in memory at a time while it is streamed."""

_PLACEHOLDER_PREFIX: Final = bytes(byte & 0x3F for byte in os.urandom(24))
"""Begins every placeholder: random per process, so that no file can contain it on purpose.

The mask clears the two upper bits of each byte: read as floats of any width, none of them is a
NaN, which protobuf's implementation in pure Python would not return bit by bit.
"""

_NUMBER_BYTES: Final = 8


@dataclass(frozen=True)
class FileField:
    """A bytes field that stays in the file: `size` bytes from `offset`."""

    offset: int
    size: int

    def __len__(self) -> int:
        return self.size


class FieldPlaceholders:
    """The placeholders for fields of one open file; without a file there are none.

    With `digests_blobs` off, blobs have the digest of no bytes, and are not read: enough when only
    the series are needed.
    """

    def __init__(self, file: BinaryIO | None = None, *, digests_blobs: bool = True) -> None:
        self._file = file
        self._digests_blobs = digests_blobs
        self._fields: list[FileField] = []
        self._blobs: dict[FileField, FileBlob] = {}
        self._loaded_bytes = 0

    def add(self, offset: int, size: int) -> bytes:
        """Return a new placeholder (32 bytes) for a field of the file."""
        self._fields.append(FileField(offset, size))
        return _PLACEHOLDER_PREFIX + (len(self._fields) - 1).to_bytes(_NUMBER_BYTES, "little")

    def restore(self, content: bytes) -> bytes | FileField:
        """Return the field that `content` is a placeholder for, or `content` if it is none."""
        if (
            not self._fields
            or len(content) != len(_PLACEHOLDER_PREFIX) + _NUMBER_BYTES
            or not content.startswith(_PLACEHOLDER_PREFIX)
        ):
            return content
        return self._fields[int.from_bytes(content[len(_PLACEHOLDER_PREFIX) :], "little")]

    def split(self, content: bytes) -> list[bytes | FileField]:
        """Return packed numbers as extents: bytes, and the field of each placeholder in them."""
        extents: list[bytes | FileField] = []
        while self._fields and (start := content.find(_PLACEHOLDER_PREFIX)) >= 0:
            end = start + len(_PLACEHOLDER_PREFIX) + _NUMBER_BYTES
            extents += [content[:start], self.restore(content[start:end])]
            content = content[end:]
        return [*extents, content]

    def try_reserve(self, size: int) -> bool:
        """Count `size` bytes of a tensor as loaded; return False when the record has too many."""
        if size > LOADED_TENSOR_BYTES_MIN and self._loaded_bytes + size > LOADED_TENSORS_BYTES_MAX:
            return False
        self._loaded_bytes += size
        return True

    def splice(self, extents: Sequence[bytes | FileField]) -> FileBlob:
        """Return consecutive extents as one blob; those in the file are read once, to hash them.

        Raises FileReplaced when the file ends early, and OSError.
        """
        digest, size = hashlib.sha256(), 0
        ranges: list[bytes | range] = []
        for extent in extents:
            for content in self._contents(extent) if self._digests_blobs else ():
                digest.update(content)
            if not len(extent):
                continue
            size += len(extent)
            ranges.append(
                extent
                if isinstance(extent, bytes)
                else range(extent.offset, extent.offset + extent.size)
            )
        return FileBlob(self._path, 0, size, digest.digest(), tuple(ranges))

    def _contents(self, extent: bytes | FileField) -> Iterator[bytes]:
        return iter((extent,)) if isinstance(extent, bytes) else self._stream(extent)

    def load(self, content: bytes | FileField) -> bytes:
        """Return the bytes, read from the file if they are one of its fields.

        Raises FileReplaced when the file ends early, and OSError.
        """
        return content if isinstance(content, bytes) else b"".join(self._stream(content))

    def blob(self, content: bytes | FileField) -> Blob:
        """Return the bytes as a blob; a field of the file is read once, to hash it.

        Raises FileReplaced when the file ends early, and OSError.
        """
        if isinstance(content, bytes):
            return content
        if content not in self._blobs:
            self._blobs[content] = self._digest_field(content)
        return self._blobs[content]

    def _digest_field(self, field: FileField) -> FileBlob:
        digest = hashlib.sha256()
        if self._digests_blobs:
            for content in self._stream(field):
                digest.update(content)
        return FileBlob(self._path, field.offset, field.size, digest.digest())

    @property
    def _path(self) -> Path:
        assert self._file is not None, "there are no fields without a file"  # noqa: S101 - for the type checker
        return Path(self._file.name)

    def _stream(self, field: FileField) -> Iterator[bytes]:
        assert self._file is not None, "there are no fields without a file"  # noqa: S101 - for the type checker
        self._file.seek(field.offset)
        count = 0
        for content in iter_bytes(self._file, field.size):
            count += len(content)
            yield content
        # It was complete when the record was found: somebody has truncated the file since.
        if count < field.size:
            raise FileReplaced(self._path)


NO_PLACEHOLDERS: Final = FieldPlaceholders()
"""For records that were loaded completely."""


def iter_bytes(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a file in chunks of up to 1 MiB; fewer when the file ends."""
    while size > 0 and (content := file.read(min(size, _READ_BYTES))):
        size -= len(content)
        yield content
