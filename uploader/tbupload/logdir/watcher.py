"""Watch a log directory: find new event files and report which files may have new content."""

from __future__ import annotations

import contextlib
import errno
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from tbupload.logdir.entries import MTIME_UNKNOWN, FileEntry, Folder, FolderChanges
from tbupload.logdir.poll_scheduler import PollScheduler
from tbupload.logdir.tree import LogdirTree

FILE_POLL_SECONDS: Final = 0.1
"""Period of checking a file that has just grown: a check takes 0.15 ms of processor time."""

FILE_POLL_TIME_SHARE: Final = 0.01
FOLDER_POLL_TIME_SHARE: Final = 0.005
"""Shares of the time spent on checking files and directories; above them, periods become longer."""

LISTING_SECONDS_MAX: Final = 0.25
"""Time that one `poll` spends on directories that were never listed before."""

FULL_LISTING_SECONDS: Final = 600.0
"""Period of listing all directories, even if unmodified; longer if there are very many."""

ACTIVE_SECONDS: Final = 40.0
"""Age of the last change below which a file is active.

Active files are checked every 0.2 s or more often, and opened for it: by close-to-open consistency
an NFS client asks its server for the attributes at each open, and may answer `stat` from a cache.
"""

_FINGERPRINT: Final = struct.Struct("<qqQ")


class FileStates(Protocol):
    """Knowledge of the files' reader about each, as far as the watcher asks for it."""

    def has_state(self, entry: FileEntry) -> bool:
        """Return whether anything is known of the file's content."""

    def may_change(self, entry: FileEntry) -> bool:
        """Return whether reading the file again may give more, even if it looks unchanged."""

    def needs_reread(self, entry: FileEntry) -> bool:
        """Return whether it may, and enough time has passed to try."""


class LogdirWatcher:
    """Reports the files of a tree that have changed, within a share of the time.

    `poll_seconds` is the period of checking directories, and the longest one of checking a quiet
    file. `total_bytes` is the size of all files and `file_count` their number; `changed_at` is when
    the last change of any was noticed, at first that of the start.

    Args:
        tree: The log directory; the watcher lists it.
        poll_seconds: Longest period, as long as the checks fit into their share of the time.
        states: State of the files' reader.
        now: A monotonic clock in seconds.
    """

    def __init__(
        self,
        tree: LogdirTree,
        poll_seconds: float,
        states: FileStates,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_bytes = 0
        self.file_count = 0
        self.changed_at = now()
        self._tree = tree
        tree.files.period_seconds = poll_seconds
        self._states = states
        self._now = now
        # A stack, not a queue: a depth-first listing of a large tree keeps few directories waiting.
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
        """Return whether there are directories that were never listed."""
        return bool(self._unlisted)

    def poll(self) -> tuple[list[FileEntry], list[FileEntry]]:
        """Check what is due, for a short time.

        Returns:
            Files that may have new content, which are not checked again before they are given to
            `park`; and deleted files.
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
        """List every directory and check every parked file at once; yield what `poll` returns."""
        # Only of object stores, whose listing is cached; for local directories it does nothing.
        with contextlib.suppress(OSError):  # listing the log directory reports it
            self._tree.files.refresh()
        parked = self._files.pop_all()
        self._folders.pop_all()
        self._unlisted = [self._tree.root]

        while self._unlisted:
            folder = self._unlisted.pop()
            changes = self._tree.list_dir(folder, is_full=True)
            # Reversed, as the stack is popped from its end: runs are found in the order of their
            # names.
            self._unlisted.extend(reversed([each for each in folder.folders if not each.is_gone]))
            # As if it had just changed: quiet directories take longer periods again by themselves.
            self._folders.add(folder, 0.0)
            changed = self._check_new_files(changes.files)
            self._forget(changes.gone)
            yield changed, changes.gone

        changed = []
        for entry in parked:
            if (
                self._has_changed(entry)
                or entry.size > entry.committed
                or self._states.may_change(entry)
            ):
                changed.append(entry)
            else:
                self.park(entry)
        yield [entry for entry in changed if not entry.is_gone], []

    def park(self, entry: FileEntry) -> None:
        """Resume checking a file whose content has been read."""
        if not entry.is_gone:
            self._files.add(entry, self._now() - entry.changed_at)

    def pause_seconds(self) -> float:
        """Return for how long no check is due."""
        return (
            0.0
            if self._unlisted
            else min(self._folders.pause_seconds(), self._files.pause_seconds())
        )

    def _list_due_folders(self) -> Iterator[FolderChanges]:
        """List new folders for LISTING_SECONDS_MAX, then those that are due."""
        end = self._now() + LISTING_SECONDS_MAX
        while self._unlisted and self._now() < end:
            yield self._list_and_schedule(self._unlisted.pop())

        relist_folders, self._relist_folders = self._relist_folders, set()
        for folder in relist_folders:
            yield self._list(folder)

        if self._now() >= self._full_listing_at:
            self._full_listing_at = self._now() + FULL_LISTING_SECONDS
            # A file can appear without a new modification time of its directory: on file systems
            # with coarse times, and on some network file systems.
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
        """List the folder now, and schedule the next time."""
        changes = self._list(folder)
        if not folder.is_gone:
            # New runs appear in directories that have directories: only leaves may be checked less
            # often.
            is_leaf = not folder.folders and folder.parent is not None
            quiet_seconds = max(0.0, time.time() - folder.mtime_ns / 1e9) if is_leaf else 0.0
            self._folders.add(folder, 0.0 if folder.mtime_ns == MTIME_UNKNOWN else quiet_seconds)
        return changes

    def _check_new_files(self, entries: Iterable[FileEntry]) -> list[FileEntry]:
        """Return the new files with content; park the others."""
        changed: list[FileEntry] = []
        for entry in entries:
            self.file_count += 1
            self._check_or_park(entry, changed)
        return changed

    def _check_or_park(self, entry: FileEntry, changed: list[FileEntry]) -> None:
        if self._has_changed(entry) or self._states.needs_reread(entry):
            changed.append(entry)
        else:
            self.park(entry)

    def _has_changed(self, entry: FileEntry) -> bool:
        """Return whether the file may have content that it had not when it was checked last.

        True as well if its attributes cannot be read: reading it then reports the error.
        """
        now = self._now()
        try:
            # An open and not only a stat, against the attribute cache of NFS: nfs(5),
            # "Close-to-open cache consistency".
            is_fresh = bool(entry.fingerprint) and now - entry.changed_at < ACTIVE_SECONDS
            files = self._tree.files
            status = files.stat_fresh(entry.path) if is_fresh else files.stat(entry.path)
        except OSError as error:
            # Not reported as deleted yet: a listing tells a deletion from a rename in progress.
            if error.errno == errno.ENOENT:
                entry.folder.mtime_ns = MTIME_UNKNOWN
                self._relist_folders.add(entry.folder)
                return False
            return self._states.needs_reread(entry) or not self._states.has_state(entry)

        fingerprint = _FINGERPRINT.pack(status.st_size, status.st_mtime_ns, status.st_ino)
        if fingerprint == entry.fingerprint:
            return False
        self.changed_at = now

        # A new file's age is the only hint how active it is. It counts as quiet at first, also if
        # the file server's clock is ahead of ours.
        entry.changed_at = (
            now if entry.fingerprint else now - max(ACTIVE_SECONDS, time.time() - status.st_mtime)
        )
        self.total_bytes += status.st_size - entry.size
        entry.fingerprint, entry.size = fingerprint, status.st_size
        return entry.size > 0 or entry.committed > 0 or self._states.has_state(entry)

    def _forget(self, gone: Iterable[FileEntry]) -> None:
        for entry in gone:
            self.total_bytes -= entry.size
            self.file_count -= 1
