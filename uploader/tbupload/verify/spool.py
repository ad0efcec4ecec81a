"""A temporary file for the points of runs that do not fit into memory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tbupload.errors import UploadError
from tbwire.digests import Records


@dataclass(frozen=True)
class Extent:
    """Position of records in the file: `start` in bytes, `count` in records."""

    start: int
    count: int
    dtype: np.dtype[Any]


class Spool:
    """An append-only temporary file of records; it has no name, and `close` deletes it."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0

    def append(self, records: Records) -> Extent:
        """Append records. Raise UploadError if they cannot be written."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="tbupload-verify-", buffering=0)  # noqa: SIM115 - see close
            self._file.seek(self._size)
            view = np.ascontiguousarray(records).view(np.uint8).data
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise UploadError(
                f"{tempfile.gettempdir()}: {error.strerror}; the points of a large run are stored "
                f"there: set TMPDIR to a directory with more than {self._size:,} bytes free"
            ) from error

        extent = Extent(self._size, len(records), records.dtype)
        self._size += records.nbytes
        return extent

    def read(self, extent: Extent, first: int, count: int) -> Records:
        """Read at most `count` records of an extent, starting at its record number `first`."""
        assert self._file is not None, "an extent was written"  # noqa: S101 - for the type checker

        count = min(count, extent.count - first)
        records = np.empty(count, extent.dtype)
        view = records.view(np.uint8).data

        self._file.seek(extent.start + first * extent.dtype.itemsize)
        while view:
            size = self._file.readinto(view)  # type: ignore[attr-defined] # a raw file has it
            assert size, "the file is not truncated"  # noqa: S101 - it has no name
            view = view[size:]
        return records

    def clear(self) -> None:
        """Delete all records; existing extents become invalid."""
        self._size = 0
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
