"""A temporary file for the points of runs that are too large to be held in memory."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from tbupload.errors import UploadError
from tbwire.digests import Records


@dataclass(frozen=True, slots=True)
class Extent:
    """Where some records are in the file: the first byte, how many records, of which type."""

    start: int
    count: int
    dtype: np.dtype[Any]


class Spool:
    """Records written one after the other, and read back in pieces. The file has no name, and is gone after `close`."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._size = 0

    def append(self, records: Records) -> Extent:
        """Writes records at the end. Raises UploadError when there is no room for them."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="tbupload-verify-", buffering=0)  # noqa: SIM115 - see close
            self._file.seek(self._size)
            view = np.ascontiguousarray(records).view(np.uint8).data
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise UploadError(
                f"{tempfile.gettempdir()}: {error.strerror}; the points of a large run are kept there: set TMPDIR to a "
                f"directory with room for more than {self._size:,} bytes"
            ) from error
        extent = Extent(self._size, len(records), records.dtype)
        self._size += records.nbytes
        return extent

    def read(self, extent: Extent, first: int, count: int) -> Records:
        """At most `count` records of an extent, from its record number `first` on."""
        assert self._file is not None, "an extent was written"  # noqa: S101 - for the type checker
        count = min(count, extent.count - first)
        records = np.empty(count, extent.dtype)
        view = records.view(np.uint8).data
        self._file.seek(extent.start + first * extent.dtype.itemsize)
        while view:
            done = self._file.readinto(view)  # type: ignore[attr-defined] # a raw file has it
            assert done, "nobody else has the file"  # noqa: S101 - it has no name
            view = view[done:]
        return records

    def clear(self) -> None:
        """Forgets everything; its extents are void."""
        self._size = 0
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        """Gives the room back."""
        if self._file is not None:
            self._file.close()
            self._file = None
