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
from tbupload.logdir.watcher import ACTIVE_SECONDS
from tbupload.upload.batches import Batch, EncodedSegment
from tbupload.upload.file_upload import FileUpload, ReadOptions, read_together
from tbupload.upload.stream_cursors import StreamCursors

CACHED_TAGS_MAX: Final = 10_000
"""Tags of which is remembered what reading on needs, beside those of files that are growing."""

TAGS_PER_FILE: Final = 8
"""What is remembered of a file takes as much memory as this many tags."""


class TagSetInterner:
    """Sets of tags, each kept once: the runs of an experiment mostly have the same ones."""

    def __init__(self) -> None:
        self._sets: weakref.WeakKeyDictionary[frozenset[str], weakref.ref[frozenset[str]]] = (
            weakref.WeakKeyDictionary()
        )

    def union(self, tags: frozenset[str], more: Iterable[str]) -> frozenset[str]:
        """The set of all of them."""
        made = tags.union(more)
        known = self._sets.get(made)
        kept = None if known is None else known()
        if kept is None:
            kept = made
            self._sets[made] = weakref.ref(made)
        return kept


class FileCache:
    """Opens files to be read, and keeps what was learnt from them until there is too much of it."""

    def __init__(self, options: ReadOptions, cursors: StreamCursors) -> None:
        self._options = options
        self._cursors = cursors
        self._cached: dict[FileEntry, int] = {}
        self._tag_count = 0

    def take(self, entry: FileEntry) -> FileUpload:
        """The file, where it stood when it was put back or as it is known by its cursor."""
        self._tag_count -= self._cached.pop(entry, 0)
        if entry.upload is None:
            entry.upload = FileUpload(
                FoundFile(entry.folder.run, Path(entry.path)), self._options, self._cursors
            )
        return entry.upload

    def prefetch(self, entries: Iterable[FileEntry]) -> None:
        """Reads the next small files together, if the first of these, to be taken next, was not read yet."""
        chosen, size = [], 0
        for entry in islice(entries, FILES_MAX):
            if (
                entry.upload is None
                and entry.committed == 0
                and not entry.is_gone
                and entry.size < FILE_BYTES_MAX
            ):
                chosen.append(entry)
                size += entry.size
            if not chosen or size > CHUNK_BYTES:
                break
        if len(chosen) > 1:
            deque(read_together(map(self.take, chosen), is_final=self._options.is_final), maxlen=0)

    def release(self, entry: FileEntry) -> None:
        """Everything in it was read for now; some other file's memory may have to go for its own."""
        source = entry.upload
        if source is None:
            return
        self._cached[entry] = TAGS_PER_FILE + source.tag_count
        self._tag_count += self._cached[entry]
        for _ in range(min(2, len(self._cached))):
            if self._tag_count > CACHED_TAGS_MAX or self._options.is_final:
                self._evict(next(iter(self._cached)))

    def forget(self, entry: FileEntry) -> None:
        """The file is gone."""
        self._tag_count -= self._cached.pop(entry, 0)

    def _evict(self, entry: FileEntry) -> None:
        """Drops the memory of a file, unless it was seen to grow a moment ago: to read it again would cost more."""
        size = self._cached.pop(entry)
        if self._options.clock() - entry.changed_at < ACTIVE_SECONDS:
            self._cached[entry] = size
            return
        self._tag_count -= size
        assert entry.upload is not None, "what is kept has a source"  # noqa: S101 - for the type checker
        if entry.upload.may_change(entry.size) or entry.upload.error is not None:
            entry.upload.evict()
        else:
            entry.upload = None


def fill_batch(
    batch: Batch,
    folder: Folder,
    cache: FileCache,
    finished: Callable[[FileEntry], None],
    has_time: Callable[[], bool],
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
        source = cache.take(entry)
        segment = source.take()
        if segment is None:
            finished(entry)
        elif not _add_segment(batch, entry, source, segment):
            folder.pending.append(entry)


def _add_segment(
    batch: Batch, entry: FileEntry, source: FileUpload, segment: EncodedSegment
) -> bool:
    """Whether the segment found a place; otherwise it goes back to its file, and the batch is closed."""
    if batch.segments and (source.is_sent_alone or not batch.fits(segment)):
        source.requeue(segment, alone=source.is_sent_alone)
        batch.is_closed = True
        return False
    batch.add(segment, entry)
    batch.is_closed = source.is_sent_alone
    return True
