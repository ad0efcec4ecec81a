"""Watches a logdir: finds new event files, and tells which files may have something to be read."""

from __future__ import annotations

import errno
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tbupload.logdir.poll_scheduler import POLLS_PER_QUIET_TIME, PollScheduler
from tbupload.logdir.tree import MTIME_UNKNOWN, FileEntry, Folder, FolderChanges, LogdirTree

FILE_POLL_SECONDS: Final = 0.2
"""How often a file that grew a moment ago is looked at."""

FILE_POLL_TIME_SHARE: Final = 0.01
FOLDER_POLL_TIME_SHARE: Final = 0.005
"""Of the time, how much looking at files and at directories may take: then looks become rarer than they should be."""

LISTING_SECONDS_MAX: Final = 0.25
"""In one turn, directories never seen before are looked into for this long."""

FULL_LISTING_SECONDS: Final = 600.0
"""At least this often directories are listed whatever their times say; more rarely when there are very many."""

ACTIVE_SECONDS: Final = FILE_POLL_SECONDS * POLLS_PER_QUIET_TIME
"""A file that was seen to change less long ago is looked at most often, and opened for it: then NFS asks its server."""

_FINGERPRINT: Final = struct.Struct("<qqQ")


class LogdirWatcher:
    """The files of a tree, and those among them that changed; `now` is a clock in seconds that never goes back.

    `poll_seconds` is how often directories are looked at, and the longest pause between looks at a quiet file, as long
    as that takes no more than its share of the time. `total_bytes` is the size of all files.
    """

    def __init__(
        self, tree: LogdirTree, poll_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.total_bytes = 0
        self.file_count = 0
        self._tree = tree
        self._now = now
        self._unlisted = [tree.root]
        self._relist_folders: set[Folder] = set()
        self._folders: PollScheduler[Folder] = PollScheduler(
            poll_seconds, 2 * poll_seconds, FOLDER_POLL_TIME_SHARE, now
        )
        self._files: PollScheduler[FileEntry] = PollScheduler(
            FILE_POLL_SECONDS, poll_seconds, FILE_POLL_TIME_SHARE, now
        )
        self._full_listing_at = now() + FULL_LISTING_SECONDS

    @property
    def is_listing(self) -> bool:
        """Whether there are directories that were never looked into."""
        return bool(self._unlisted)

    def poll(self) -> tuple[list[FileEntry], list[FileEntry]]:
        """Looks at what is due, for a short time; the files that may have something to be read, and those gone.

        A file that is handed out is looked at no more until it is told to `rest`.
        """
        changed: list[FileEntry] = []
        gone: list[FileEntry] = []
        for changes in self._list_due_folders():
            gone.extend(changes.gone)
            changed.extend(self._check_new_files(changes.files))
        for entry in self._files.ready():
            if not entry.is_gone:
                self._check_or_park(entry, changed)
        self._forget(gone)
        return changed, gone

    def rescan(self) -> Iterator[tuple[list[FileEntry], list[FileEntry]]]:
        """Lists every directory, looks at every resting file, whatever is due; answers as `turn` does, in parts."""
        resting = self._files.pop_all()
        self._folders.pop_all()
        self._unlisted = [self._tree.root]
        while self._unlisted:
            folder = self._unlisted.pop()
            changes = self._tree.list_dir(folder, is_full=True)
            self._unlisted.extend(reversed([each for each in folder.folders if not each.is_gone]))
            self._folders.add(folder, 0.0)
            changed = self._check_new_files(changes.files)
            self._forget(changes.gone)
            yield changed, changes.gone
        changed = []
        for entry in resting:
            if self._has_changed(entry) or entry.size > entry.committed or self._may_change(entry):
                changed.append(entry)
            else:
                self.park(entry)
        yield [entry for entry in changed if not entry.is_gone], []

    def park(self, entry: FileEntry) -> None:
        """Everything in the file was read: looks at it from time to time again."""
        if not entry.is_gone:
            self._files.add(entry, self._now() - entry.changed_at)

    def pause_seconds(self) -> float:
        """How long nothing has to be looked at."""
        return (
            0.0
            if self._unlisted
            else min(self._folders.pause_seconds(), self._files.pause_seconds())
        )

    def _list_due_folders(self) -> Iterator[FolderChanges]:
        """Looks into folders never seen, for a while, then into those whose turn it is."""
        end = self._now() + LISTING_SECONDS_MAX
        while self._unlisted and self._now() < end:
            yield self._list_and_schedule(self._unlisted.pop())
        relist_folders, self._relist_folders = self._relist_folders, set()
        for folder in relist_folders:
            yield self._list(folder)
        if self._now() >= self._full_listing_at:
            self._full_listing_at = self._now() + FULL_LISTING_SECONDS
            for folder in self._folders.pop_all():
                folder.mtime_ns = MTIME_UNKNOWN
                self._folders.add(folder, math.inf)
        for folder in self._folders.ready():
            if not folder.is_gone:
                yield self._list_and_schedule(folder)

    def _list(self, folder: Folder) -> FolderChanges:
        changes = self._tree.list_dir(folder)
        self._unlisted.extend(reversed(changes.folders))
        return changes

    def _list_and_schedule(self, folder: Folder) -> FolderChanges:
        """Looks into the folder, now and later again."""
        changes = self._list(folder)
        if not folder.is_gone:
            is_leaf = not folder.folders and folder.parent is not None
            quiet_seconds = max(0.0, time.time() - folder.mtime_ns / 1e9) if is_leaf else 0.0
            self._folders.add(folder, 0.0 if folder.mtime_ns == MTIME_UNKNOWN else quiet_seconds)
        return changes

    def _check_new_files(self, entries: Iterable[FileEntry]) -> list[FileEntry]:
        """Those of the new files that have content; the others rest."""
        changed: list[FileEntry] = []
        for entry in entries:
            self.file_count += 1
            self._check_or_park(entry, changed)
        return changed

    def _check_or_park(self, entry: FileEntry, changed: list[FileEntry]) -> None:
        if self._has_changed(entry) or self._needs_reread(entry):
            changed.append(entry)
        else:
            self.park(entry)

    def _needs_reread(self, entry: FileEntry) -> bool:
        source = entry.upload
        return source is not None and source.needs_reread(
            entry.size, self._now() - entry.changed_at
        )

    def _may_change(self, entry: FileEntry) -> bool:
        return entry.upload is not None and entry.upload.may_change(entry.size)

    def _has_changed(self, entry: FileEntry) -> bool:
        """Whether there is something to be read in the file that was not there when it was looked at last.

        A file that cannot be looked at is one that is to be read: that tells what is wrong with it.
        """
        now = self._now()
        try:
            status = _status(
                entry.path,
                is_fresh=bool(entry.fingerprint) and now - entry.changed_at < ACTIVE_SECONDS,
            )
        except OSError as error:
            if error.errno == errno.ENOENT:
                entry.folder.mtime_ns = MTIME_UNKNOWN
                self._relist_folders.add(entry.folder)
                return False
            return self._needs_reread(entry) or entry.upload is None
        seen = _FINGERPRINT.pack(status.st_size, status.st_mtime_ns, status.st_ino)
        if seen == entry.fingerprint:
            return False
        # The age of a file met for the first time is all that is known of how lively it is, and clocks may differ.
        entry.changed_at = (
            now if entry.fingerprint else now - max(ACTIVE_SECONDS, time.time() - status.st_mtime)
        )
        self.total_bytes += status.st_size - entry.size
        entry.fingerprint, entry.size = seen, status.st_size
        return entry.size > 0 or entry.committed > 0 or entry.upload is not None

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
