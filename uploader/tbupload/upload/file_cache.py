"""A cache of file uploads: what was learned from files that are active or not yet read."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from tbupload.events.multi_file_decode import FILE_BYTES_MAX, FILES_MAX
from tbupload.limits import CHUNK_BYTES
from tbupload.logdir.entries import FileEntry
from tbupload.logdir.scan import FoundFile
from tbupload.logdir.watcher import ACTIVE_SECONDS
from tbupload.remote_files import make_path
from tbupload.upload.file_upload import FileUpload, read_together
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.readers.pool import ReaderPool
from tbupload.upload.stream_cursors import StreamCursors

CACHED_TAGS_MAX: Final = 10_000
"""Tags of the released files in the cache, at most; those of active files do not count."""

TAGS_PER_FILE: Final = 8
"""Tags that take as much memory as a released file without any."""


class TagSetInterner:
    """Equal sets of tags as one object each: most runs of an experiment have the same tags."""

    def __init__(self) -> None:
        self._sets: weakref.WeakKeyDictionary[frozenset[str], weakref.ref[frozenset[str]]] = (
            weakref.WeakKeyDictionary()
        )

    def intern_union(self, tags: frozenset[str], more: Iterable[str]) -> frozenset[str]:
        """Return the union of both, as the same object each time while it is referenced."""
        union = tags.union(more)
        reference = self._sets.get(union)
        interned = None if reference is None else reference()
        if interned is None:
            interned = union
            self._sets[union] = weakref.ref(union)
        return interned


class FileCache:
    """The file uploads of one upload, by file.

    A file has one from when it is first acquired until it is evicted after its release: among
    hundreds of thousands of files, few have one at a time. A file that cannot be read to its end
    has one as well, without a reader.

    Implements `FileStates` for the watcher. The clock of `options` is the watcher's.
    """

    def __init__(self, options: ReadOptions, cursors: StreamCursors) -> None:
        self._options = options
        self._cursors = cursors
        self._uploads: dict[FileEntry, FileUpload] = {}
        self._released: dict[FileEntry, int] = {}  # their tags, least recently released first
        self._tag_count = 0

    def find(self, entry: FileEntry) -> FileUpload | None:
        """Return the file's upload if it has one."""
        return self._uploads.get(entry)

    def has_state(self, entry: FileEntry) -> bool:
        """Return whether the file has an upload."""
        return entry in self._uploads

    def may_change(self, entry: FileEntry) -> bool:
        """Return whether reading the file again may give more, even if it looks unchanged."""
        upload = self._uploads.get(entry)
        return upload is not None and upload.may_change(entry.size)

    def needs_reread(self, entry: FileEntry) -> bool:
        """Return whether it may, and enough time has passed to try."""
        upload = self._uploads.get(entry)
        return upload is not None and upload.needs_reread(
            entry.size, self._options.clock() - entry.changed_at
        )

    def acquire(self, entry: FileEntry) -> FileUpload:
        """Return the file's upload, which is not evicted before it is released.

        A new one reads on from the stream's cursor.
        """
        self._tag_count -= self._released.pop(entry, 0)
        upload = self._uploads.get(entry)
        if upload is None:
            upload = self._uploads[entry] = FileUpload(
                FoundFile(entry.folder.run, make_path(entry.path)), self._options, self._cursors
            )
        return upload

    def prefetch(self, entries: Iterable[FileEntry]) -> None:
        """Decode the first files together if they are small and new.

        Args:
            entries: Files in the order in which they will be acquired.
        """
        small_files, size = [], 0
        for entry in islice(entries, FILES_MAX):
            if (
                entry not in self._uploads
                and entry.committed == 0
                and not entry.is_gone
                and entry.size < FILE_BYTES_MAX
            ):
                small_files.append(entry)
                size += entry.size
            if not small_files or size > CHUNK_BYTES:
                break

        if len(small_files) > 1:
            uploads = map(self.acquire, small_files)
            deque(read_together(uploads, is_final=self._options.is_final), maxlen=0)

    def read_ahead(
        self,
        entries: Iterable[FileEntry],
        readers: ReaderPool,
        may_read_ahead: Callable[[FileEntry], bool],
    ) -> None:
        """Give files to the readers while these have room: large ones alone, small ones in groups.

        Args:
            entries: Files in the order in which they will be acquired.
            readers: The readers.
            may_read_ahead: Called with each file; False leaves it to the upload.
        """
        group: list[FileUpload] = []
        size = 0
        for entry in entries:
            if not readers.has_room:
                break
            if entry.is_gone or not may_read_ahead(entry):
                continue
            upload = self.acquire(entry)
            if not upload.prepare_read_ahead():
                continue
            unread = entry.size - upload.committed
            if unread <= 0:
                continue
            if unread >= FILE_BYTES_MAX:
                readers.read([upload])
                continue
            group.append(upload)
            size += unread
            if len(group) == readers.group_files_max or size > CHUNK_BYTES - FILE_BYTES_MAX:
                readers.read(group)
                group, size = [], 0
        if group and readers.has_room:
            readers.read(group)

    def release(self, entry: FileEntry) -> None:
        """Allow eviction of a file that was read to its end; evict others if there are many."""
        upload = self._uploads.get(entry)
        if upload is None:
            return
        upload.leave_ahead()
        self._released[entry] = TAGS_PER_FILE + upload.tag_count
        self._tag_count += self._released[entry]

        # Two for each one released: the cache shrinks again after files that were active.
        for _ in range(min(2, len(self._released))):
            if self._tag_count > CACHED_TAGS_MAX or self._options.is_final:
                self._evict(next(iter(self._released)))

    def forget(self, entry: FileEntry) -> None:
        """Remove the upload of a deleted file; a batch that contains its data still has it."""
        self._tag_count -= self._released.pop(entry, 0)
        upload = self._uploads.pop(entry, None)
        if upload is not None:
            upload.leave_ahead()

    def _evict(self, entry: FileEntry) -> None:
        """Drop what is known of a file, unless it is active: reading it again would cost more."""
        tag_count = self._released.pop(entry)
        if self._options.clock() - entry.changed_at < ACTIVE_SECONDS:
            self._released[entry] = tag_count
            return

        self._tag_count -= tag_count
        upload = self._uploads[entry]
        if upload.may_change(entry.size) or upload.error is not None:
            upload.evict()
        else:
            del self._uploads[entry]
