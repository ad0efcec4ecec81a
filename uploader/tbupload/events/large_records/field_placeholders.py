"""Large blobs cut out of a record: a placeholder stands for each while protobuf reads what is left."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tbupload.errors import FileReplaced
from tbupload.events.points import Blob, FileBlob
from tbupload.limits import LOADED_TENSOR_BYTES_MIN, LOADED_TENSORS_BYTES_MAX

_PIECE_BYTES: Final = 1 << 20
"""How much of a file is held at a time while it is streamed."""

_PLACEHOLDER_PREFIX: Final = bytes(byte & 0x3F for byte in os.urandom(24))
"""What every placeholder begins with: no file holds these bytes, as no file can know them.

As floats of any width none is a NaN, which protobuf in pure Python would change.
"""

_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class FileField:
    """A bytes field that was left in the file: `size` bytes from `offset` on."""

    offset: int
    size: int

    def __len__(self) -> int:
        return self.size


class FieldPlaceholders:
    """The fields cut out of records of one open file; without a file, nothing is ever cut.

    With `digests_blobs` off, blobs have the digest of nothing: for reading that wants to know the series alone.
    """

    def __init__(self, file: BinaryIO | None = None, *, digests_blobs: bool = True) -> None:
        self._file = file
        self._digests_blobs = digests_blobs
        self._fields: list[FileField] = []
        self._blobs: dict[FileField, FileBlob] = {}
        self._loaded_bytes = 0

    def add(self, offset: int, size: int) -> bytes:
        """Notes a field that stays in the file; answers what stands for it."""
        self._fields.append(FileField(offset, size))
        return _PLACEHOLDER_PREFIX + (len(self._fields) - 1).to_bytes(_NUMBER_BYTES, "little")

    def restore(self, content: bytes) -> bytes | FileField:
        """What a bytes field stands for: itself, unless it is a placeholder."""
        if (
            not self._fields
            or len(content) != len(_PLACEHOLDER_PREFIX) + _NUMBER_BYTES
            or not content.startswith(_PLACEHOLDER_PREFIX)
        ):
            return content
        return self._fields[int.from_bytes(content[len(_PLACEHOLDER_PREFIX) :], "little")]

    def split(self, content: bytes) -> list[bytes | FileField]:
        """What packed numbers stand for: bytes, and in the place of each placeholder among them its field."""
        pieces: list[bytes | FileField] = []
        while self._fields and (start := content.find(_PLACEHOLDER_PREFIX)) >= 0:
            end = start + len(_PLACEHOLDER_PREFIX) + _NUMBER_BYTES
            pieces += [content[:start], self.restore(content[start:end])]
            content = content[end:]
        return [*pieces, content]

    def try_reserve(self, size: int) -> bool:
        """Count so many bytes of a tensor as loaded, unless those of its record are many already."""
        if size > LOADED_TENSOR_BYTES_MIN and self._loaded_bytes + size > LOADED_TENSORS_BYTES_MAX:
            return False
        self._loaded_bytes += size
        return True

    def splice(self, pieces: Sequence[bytes | FileField]) -> FileBlob:
        """Pieces of which some were cut out as one blob; it is read once, for its digest. Raises as `load` does."""
        digest, size = hashlib.sha256(), 0
        ranges: list[bytes | range] = []
        for piece in pieces:
            for content in self._contents(piece) if self._digests_blobs else ():
                digest.update(content)
            if not len(piece):
                continue
            size += len(piece)
            ranges.append(
                piece
                if isinstance(piece, bytes)
                else range(piece.offset, piece.offset + piece.size)
            )
        return FileBlob(self._path, 0, size, digest.digest(), tuple(ranges))

    def _contents(self, piece: bytes | FileField) -> Iterator[bytes]:
        return iter((piece,)) if isinstance(piece, bytes) else self._stream(piece)

    def load(self, content: bytes | FileField) -> bytes:
        """The bytes themselves, read from the file if they were cut out. Raises FileReplaced when it ends early."""
        return content if isinstance(content, bytes) else b"".join(self._stream(content))

    def blob(self, content: bytes | FileField) -> Blob:
        """The bytes as a blob; those that were cut out are read once, for their digest. Raises as `load` does."""
        if isinstance(content, bytes):
            return content
        if content not in self._blobs:
            self._blobs[content] = self._digest_field(content)
        return self._blobs[content]

    def _digest_field(self, field: FileField) -> FileBlob:
        digest = hashlib.sha256()
        if self._digests_blobs:
            for piece in self._stream(field):
                digest.update(piece)
        return FileBlob(self._path, field.offset, field.size, digest.digest())

    @property
    def _path(self) -> Path:
        assert self._file is not None, "nothing is cut out without a file"  # noqa: S101 - for the type checker
        return Path(self._file.name)

    def _stream(self, field: FileField) -> Iterator[bytes]:
        assert self._file is not None, "nothing is cut out without a file"  # noqa: S101 - for the type checker
        self._file.seek(field.offset)
        count = 0
        for piece in iter_bytes(self._file, field.size):
            count += len(piece)
            yield piece
        if count < field.size:
            raise FileReplaced(self._path)


NO_PLACEHOLDERS: Final = FieldPlaceholders()
"""For records that are in memory whole."""


def iter_bytes(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The next `size` bytes of a file in pieces; fewer when the file ends."""
    while size > 0 and (piece := file.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        yield piece
