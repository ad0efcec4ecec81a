"""The files of a run on their way into batches, and what is kept of them afterwards."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from tbupload.events.multi_file_decode import FILE_BYTES_MAX, FILES_MAX
from tbupload.limits import CHUNK_BYTES
from tbupload.logdir.scan import FoundFile
from tbupload.logdir.tree import FileEntry, Folder
from tbupload.logdir.watcher import FRESH_SECONDS
from tbupload.upload.batches import Batch, EncodedSegment
from tbupload.upload.file_upload import Reading, Source, read_together
from tbupload.upload.stream_cursors import CursorBook

TAGS_KEPT: Final = 10_000
"""Tags of which is remembered what reading on needs, beside those of files that are growing."""

FILE_TAGS: Final = 8
"""What is remembered of a file takes as much memory as this many tags."""


class TagSets:
    """Sets of tags, each kept once: the runs of an experiment mostly have the same ones."""

    def __init__(self) -> None:
        self._sets: weakref.WeakKeyDictionary[frozenset[str], weakref.ref[frozenset[str]]] = weakref.WeakKeyDictionary()

    def union(self, tags: frozenset[str], more: Iterable[str]) -> frozenset[str]:
        """The set of all of them."""
        made = tags.union(more)
        known = self._sets.get(made)
        kept = None if known is None else known()
        if kept is None:
            kept = made
            self._sets[made] = weakref.ref(made)
        return kept


class Shelf:
    """Opens files to be read, and keeps what was learnt from them until there is too much of it."""

    def __init__(self, reading: Reading, cursors: CursorBook) -> None:
        self._reading = reading
        self._cursors = cursors
        self._kept: dict[FileEntry, int] = {}
        self._tags = 0

    def take(self, entry: FileEntry) -> Source:
        """The file, where it stood when it was put back or as it is known by its cursor."""
        self._tags -= self._kept.pop(entry, 0)
        if entry.source is None:
            entry.source = Source(FoundFile(entry.folder.run, Path(entry.path)), self._reading, self._cursors)
        return entry.source

    def read_ahead(self, entries: Iterable[FileEntry]) -> None:
        """Reads the next small files together, if the first of these, to be taken next, was not read yet."""
        chosen, size = [], 0
        for entry in islice(entries, FILES_MAX):
            if entry.source is None and entry.committed == 0 and not entry.is_gone and entry.size < FILE_BYTES_MAX:
                chosen.append(entry)
                size += entry.size
            if not chosen or size > CHUNK_BYTES:
                break
        if len(chosen) > 1:
            deque(read_together(map(self.take, chosen), is_final=self._reading.is_final), maxlen=0)

    def put_back(self, entry: FileEntry) -> None:
        """Everything in it was read for now; some other file's memory may have to go for its own."""
        source = entry.source
        if source is None:
            return
        self._kept[entry] = FILE_TAGS + source.tag_count
        self._tags += self._kept[entry]
        for _ in range(min(2, len(self._kept))):
            if self._tags > TAGS_KEPT or self._reading.is_final:
                self._let_go(next(iter(self._kept)))

    def forget(self, entry: FileEntry) -> None:
        """The file is gone."""
        self._tags -= self._kept.pop(entry, 0)

    def _let_go(self, entry: FileEntry) -> None:
        """Drops the memory of a file, unless it was seen to grow a moment ago: to read it again would cost more."""
        size = self._kept.pop(entry)
        if self._reading.clock() - entry.changed_at < FRESH_SECONDS:
            self._kept[entry] = size
            return
        self._tags -= size
        assert entry.source is not None, "what is kept has a source"  # noqa: S101 - for the type checker
        if entry.source.is_unsettled(entry.size) or entry.source.trouble is not None:
            entry.source.shed()
        else:
            entry.source = None


def fill(
    batch: Batch, folder: Folder, shelf: Shelf, finished: Callable[[FileEntry], None], has_time: Callable[[], bool]
) -> None:
    """Puts the next segments of the run's pending files into the batch while there is room and time: one a file.

    Files with nothing to send are `finished`; those that have a segment in the batch are no longer pending.
    """
    pending, folder.pending = folder.pending or [], []
    for index, entry in enumerate(pending):
        if not batch.has_room() or not has_time():
            folder.pending.extend(pending[index:])
            return
        if entry.is_gone:
            continue
        source = shelf.take(entry)
        segment = source.take()
        if segment is None:
            finished(entry)
        elif not _add(batch, entry, source, segment):
            folder.pending.append(entry)


def _add(batch: Batch, entry: FileEntry, source: Source, segment: EncodedSegment) -> bool:
    """Whether the segment found a place; otherwise it goes back to its file, and the batch is closed."""
    if batch.segments and (source.travels_alone or not batch.fits(segment)):
        source.send_back(segment, alone=source.travels_alone)
        batch.is_closed = True
        return False
    batch.add(segment, entry)
    batch.is_closed = source.travels_alone
    return True
