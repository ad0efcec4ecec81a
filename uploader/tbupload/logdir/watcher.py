"""Watches a logdir: finds new event files, and tells which files may have something to be read."""

from __future__ import annotations

import errno
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tbupload.logdir.poll_scheduler import QUIET_LOOKS, Lanes
from tbupload.logdir.tree import UNKNOWN, Changes, FileEntry, Folder, LogdirTree

LOOK_SECONDS: Final = 0.2
"""How often a file that grew a moment ago is looked at."""

FILES_SHARE: Final = 0.01
FOLDERS_SHARE: Final = 0.005
"""Of the time, how much looking at files and at directories may take: then looks become rarer than they should be."""

LISTING_SECONDS_MAX: Final = 0.25
"""In one turn, directories never seen before are looked into for this long."""

FULL_LOOK_SECONDS: Final = 600.0
"""At least this often directories are listed whatever their times say; more rarely when there are very many."""

FRESH_SECONDS: Final = LOOK_SECONDS * QUIET_LOOKS
"""A file that was seen to change less long ago is looked at most often, and opened for it: then NFS asks its server."""

_FINGERPRINT: Final = struct.Struct("<qqQ")


class Watch:
    """The files of a tree, and those among them that changed; `now` is a clock in seconds that never goes back.

    `poll_seconds` is how often directories are looked at, and the longest pause between looks at a quiet file, as long
    as that takes no more than its share of the time. `total_bytes` is the size of all files.
    """

    def __init__(self, tree: LogdirTree, poll_seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.total_bytes = 0
        self.file_count = 0
        self._tree = tree
        self._now = now
        self._unlisted = [tree.root]
        self._doubtful: set[Folder] = set()
        self._folders: Lanes[Folder] = Lanes(poll_seconds, 2 * poll_seconds, FOLDERS_SHARE, now)
        self._files: Lanes[FileEntry] = Lanes(LOOK_SECONDS, poll_seconds, FILES_SHARE, now)
        self._full_look_at = now() + FULL_LOOK_SECONDS

    @property
    def is_listing(self) -> bool:
        """Whether there are directories that were never looked into."""
        return bool(self._unlisted)

    def turn(self) -> tuple[list[FileEntry], list[FileEntry]]:
        """Looks at what is due, for a short time; the files that may have something to be read, and those gone.

        A file that is handed out is looked at no more until it is told to `rest`.
        """
        changed: list[FileEntry] = []
        gone: list[FileEntry] = []
        for changes in self._list_what_is_due():
            gone.extend(changes.gone)
            changed.extend(self._begin_with(changes.files))
        for entry in self._files.due():
            if not entry.is_gone:
                self._look_or_rest(entry, changed)
        self._forget(gone)
        return changed, gone

    def everything(self) -> Iterator[tuple[list[FileEntry], list[FileEntry]]]:
        """Lists every directory, looks at every resting file, whatever is due; answers as `turn` does, in parts."""
        resting = self._files.take_all()
        self._folders.take_all()
        self._unlisted = [self._tree.root]
        while self._unlisted:
            folder = self._unlisted.pop()
            changes = self._tree.look_into(folder, is_full=True)
            self._unlisted.extend(reversed([each for each in folder.folders if not each.is_gone]))
            self._folders.add(folder, 0.0)
            changed = self._begin_with(changes.files)
            self._forget(changes.gone)
            yield changed, changes.gone
        changed = []
        for entry in resting:
            if self._has_changed(entry) or entry.size > entry.committed or self._is_unsettled(entry):
                changed.append(entry)
            else:
                self.rest(entry)
        yield [entry for entry in changed if not entry.is_gone], []

    def rest(self, entry: FileEntry) -> None:
        """Everything in the file was read: looks at it from time to time again."""
        if not entry.is_gone:
            self._files.add(entry, self._now() - entry.changed_at)

    def pause_seconds(self) -> float:
        """How long nothing has to be looked at."""
        return 0.0 if self._unlisted else min(self._folders.pause_seconds(), self._files.pause_seconds())

    def _list_what_is_due(self) -> Iterator[Changes]:
        """Looks into folders never seen, for a while, then into those whose turn it is."""
        end = self._now() + LISTING_SECONDS_MAX
        while self._unlisted and self._now() < end:
            yield self._look_into(self._unlisted.pop())
        doubtful, self._doubtful = self._doubtful, set()
        for folder in doubtful:
            yield self._list(folder)
        if self._now() >= self._full_look_at:
            self._full_look_at = self._now() + FULL_LOOK_SECONDS
            for folder in self._folders.take_all():
                folder.mtime_ns = UNKNOWN
                self._folders.add(folder, math.inf)
        for folder in self._folders.due():
            if not folder.is_gone:
                yield self._look_into(folder)

    def _list(self, folder: Folder) -> Changes:
        changes = self._tree.look_into(folder)
        self._unlisted.extend(reversed(changes.folders))
        return changes

    def _look_into(self, folder: Folder) -> Changes:
        """Looks into the folder, now and later again."""
        changes = self._list(folder)
        if not folder.is_gone:
            is_leaf = not folder.folders and folder.parent is not None
            quiet_seconds = max(0.0, time.time() - folder.mtime_ns / 1e9) if is_leaf else 0.0
            self._folders.add(folder, 0.0 if folder.mtime_ns == UNKNOWN else quiet_seconds)
        return changes

    def _begin_with(self, entries: Iterable[FileEntry]) -> list[FileEntry]:
        """Those of the new files that have content; the others rest."""
        changed: list[FileEntry] = []
        for entry in entries:
            self.file_count += 1
            self._look_or_rest(entry, changed)
        return changed

    def _look_or_rest(self, entry: FileEntry, changed: list[FileEntry]) -> None:
        if self._has_changed(entry) or self._is_to_be_read_again(entry):
            changed.append(entry)
        else:
            self.rest(entry)

    def _is_to_be_read_again(self, entry: FileEntry) -> bool:
        source = entry.source
        return source is not None and source.is_to_be_read_again(entry.size, self._now() - entry.changed_at)

    def _is_unsettled(self, entry: FileEntry) -> bool:
        return entry.source is not None and entry.source.is_unsettled(entry.size)

    def _has_changed(self, entry: FileEntry) -> bool:
        """Whether there is something to be read in the file that was not there when it was looked at last.

        A file that cannot be looked at is one that is to be read: that tells what is wrong with it.
        """
        now = self._now()
        try:
            status = _status(entry.path, is_fresh=bool(entry.seen) and now - entry.changed_at < FRESH_SECONDS)
        except OSError as error:
            if error.errno == errno.ENOENT:
                entry.folder.mtime_ns = UNKNOWN
                self._doubtful.add(entry.folder)
                return False
            return self._is_to_be_read_again(entry) or entry.source is None
        seen = _FINGERPRINT.pack(status.st_size, status.st_mtime_ns, status.st_ino)
        if seen == entry.seen:
            return False
        # The age of a file met for the first time is all that is known of how lively it is, and clocks may differ.
        entry.changed_at = now if entry.seen else now - max(FRESH_SECONDS, time.time() - status.st_mtime)
        self.total_bytes += status.st_size - entry.size
        entry.seen, entry.size = seen, status.st_size
        return entry.size > 0 or entry.committed > 0 or entry.source is not None

    def _forget(self, gone: Iterable[FileEntry]) -> None:
        for entry in gone:
            self.total_bytes -= entry.size
            self.file_count -= 1


def _status(path: str, *, is_fresh: bool) -> os.stat_result:
    if not is_fresh:
        return os.stat(path)  # noqa: PTH116 - a Path takes as long to make as the call itself
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)
