"""Read small files together: decoding them as one buffer is far cheaper than one by one."""

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
"""A larger file is read alone: the fixed cost of a chunk is small compared with its records."""

FILES_MAX: Final = 256
"""Files in one buffer; few are so short that more would fit."""

FILES_MIN: Final = 2

Item = TypeVar("Item")


def read_together(
    items: Iterable[Item],
    file_of: Callable[[Item], EventFileReader | None],
    is_wanted: Callable[[Item, bytes], bool],
    *,
    final: bool,
) -> Iterator[Item]:
    """Yield the items in order, after prefetching the first chunk of their files where possible.

    `EventFileReader.read`, with the same `final`, then returns that chunk. It reads the chunk of an
    unsuitable file itself, and raises the file's errors.

    Args:
        items: Any objects that have a file. All files have the same limits.
        file_of: Returns an item's file, None to leave it alone. It is called once per item.
        is_wanted: Called with an item and the digest of its file's first record; False leaves the
            file alone.
        final: No job is writing the files any more.
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
    """Files in one buffer, one after the other; the i-th begins at `bounds[i]`. It is reused."""

    def __init__(self) -> None:
        self._buffer = new_buffer(CHUNK_BYTES)
        self._files: list[EventFileReader] = []
        self._bounds = [0]

    def add(self, file: EventFileReader, is_wanted: Callable[[bytes], bool]) -> bool:
        """Add the file if it is suitable; return False when there is no room for any file."""
        room = self._buffer[self._bounds[-1] : -PADDING_BYTES]
        if len(room) < FILE_BYTES_MAX:
            return False
        # `EventFileReader.read` will raise the error again, where it is handled.
        with contextlib.suppress(OSError):
            size = file.load(room[:FILE_BYTES_MAX], is_wanted)
            if size:
                self._files.append(file)
                self._bounds.append(self._bounds[-1] + size)
        return True

    def read(self, *, final: bool) -> None:
        """Decode the files and set their first chunks; files without complete records are left."""
        files, bounds = self._files, self._bounds
        self._files, self._bounds = [], [0]
        if len(files) < FILES_MIN:
            return

        framed = self._find_file_records(bounds, final=final)
        filled = [item for item in zip(files, bounds, framed) if len(item[2].starts)]
        stops = accumulate(len(frames.starts) for _, _, frames in filled)
        parts = [file.file_part(stop) for (file, _, _), stop in zip(filled, stops)]
        if not parts:
            return

        joined = framing.join([frames for _, _, frames in filled])
        # Too many points for one chunk may be few enough per file: then each is read alone.
        with contextlib.suppress(ChunkIsFull):
            ChunkDecoder(self._buffer, joined, parts, files[0].limits).decode()
            for (file, begin, frames), part in zip(filled, parts):
                file.set_first_chunk(self._buffer[begin : frames.end], part)

    def _find_file_records(self, bounds: list[int], *, final: bool) -> Iterator[RecordFrames]:
        """Yield the complete records of each file."""
        framed = framing.find_joined_records(self._buffer, bounds)
        for end, frames in zip(bounds[1:], framed):
            if not final and frames.end == end:
                yield framing.drop_corrupt_end(self._buffer, frames)
            else:
                yield frames
