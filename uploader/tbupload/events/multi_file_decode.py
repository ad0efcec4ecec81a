"""Reads small files together: their records are decoded as if they were of one file, which is far cheaper for each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar

from tbupload.events import framing
from tbupload.events.decode.budget import ChunkIsFull
from tbupload.events.decode.decoder import ChunkDecoder
from tbupload.events.decode.record_rows import PADDING_BYTES, new_buffer
from tbupload.events.event_file import EventFileReader
from tbupload.events.framing import RecordFrames
from tbupload.limits import CHUNK_BYTES

FILE_BYTES_MAX: Final = 1 << 20
"""A larger file is read by itself, which costs no more."""

FILES_MAX: Final = 256
"""Files that are read together; few are so short that more would be."""

FILES_MIN: Final = 2

Item = TypeVar("Item")


def read_together(
    items: Iterable[Item],
    file_of: Callable[[Item], EventFileReader | None],
    is_wanted: Callable[[Item, bytes], bool],
    *,
    final: bool,
) -> Iterator[Item]:
    """The same items in their order; the first chunk of each one's file was read when it is given, if that was cheaper.

    `EventFileReader.read`, which has to be called with the same `final`, then gives that chunk without reading again; or it
    reads the file itself, and finds whatever is special about it. `file_of` is called once for each item; it answers
    None when the item's file is to be left alone, and so does `is_wanted` with False when it is told the digest of its
    first record. All files have the same limits.
    """
    waiting: list[Item] = []
    group = _FileGroup()
    for item in items:
        file = file_of(item)
        if len(waiting) >= FILES_MAX or (
            file is not None and not group.add(file, partial(is_wanted, item))
        ):
            group.read(final=final)
            yield from waiting
            waiting = []
            if file is not None:
                group.add(file, partial(is_wanted, item))
        waiting.append(item)
    group.read(final=final)
    yield from waiting


class _FileGroup:
    """Files in one buffer, one after the other; the i-th begins at `bounds[i]`. Filled and read again and again."""

    def __init__(self) -> None:
        self._buffer = new_buffer(CHUNK_BYTES)
        self._files: list[EventFileReader] = []
        self._bounds = [0]

    def add(self, file: EventFileReader, is_wanted: Callable[[bytes], bool]) -> bool:
        """Takes the file in if it can be read together with others; False when there is only no room for it."""
        room = self._buffer[self._bounds[-1] : -PADDING_BYTES]
        if len(room) < FILE_BYTES_MAX:
            return False
        with contextlib.suppress(OSError):  # it will be met again when the file is read
            size = file.load(room[:FILE_BYTES_MAX], is_wanted)
            if size:
                self._files.append(file)
                self._bounds.append(self._bounds[-1] + size)
        return True

    def read(self, *, final: bool) -> None:
        """Decodes the files and leaves each its chunk; those that are special in some way are left as they are."""
        files, bounds = self._files, self._bounds
        self._files, self._bounds = [], [0]
        if len(files) < FILES_MIN:
            return
        framed = self._find_file_records(bounds, final=final)
        found = [part for part in zip(files, bounds, framed, strict=False) if len(part[2].starts)]
        stops = accumulate(len(frames.starts) for _, _, frames in found)
        parts = [file.file_part(stop) for (file, _, _), stop in zip(found, stops, strict=True)]
        if not parts:
            return
        joined = framing.join([frames for _, _, frames in found])
        with contextlib.suppress(ChunkIsFull):  # of each alone there may not be too much
            ChunkDecoder(self._buffer, joined, parts, files[0].limits).decode()
            for (file, begin, frames), part in zip(found, parts, strict=True):
                file.set_first_chunk(self._buffer[begin : frames.end], part)

    def _find_file_records(self, bounds: list[int], *, final: bool) -> Iterator[RecordFrames]:
        """The records of each file that are whole."""
        framed = framing.find_joined_records(self._buffer, bounds)
        for end, frames in zip(bounds[1:], framed, strict=True):
            if not final and frames.end == end:
                yield framing.drop_corrupt_end(self._buffer, frames)
            else:
                yield frames
