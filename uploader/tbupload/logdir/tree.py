"""The directories and event files of a log directory, found by TensorBoard's rules.

The tree is updated one directory at a time: an upload may have hundreds of thousands of them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tbupload.events.filters import SeriesFilter
from tbupload.events.projector_files import CONFIG_NAME
from tbupload.logdir.entries import MTIME_UNKNOWN, FileEntry, Folder, FolderChanges, RootFolder
from tbupload.remote_files import Entry, Status, files_of, is_remote

MTIME_TRUSTED_SECONDS: Final = 3.0
"""Age from which a directory's modification time is trusted.

A younger directory is listed again: timestamps are coarse (1 s on some file systems), so a later
change may leave the same time.
"""

_GONE_ERRNOS: Final = frozenset({errno.ENOENT, errno.ENOTDIR})

_REPORTED_FAILURES_MAX: Final = 2
"""Failures to list a folder that count as new problems; later ones in a row are not reported."""


class LogdirTree:
    """The folders of a log directory from `root` down, each empty until `list_dir` reads it.

    A run is a directory with an event file directly in it; links are followed. Runs rejected by the
    filter have no files. Names that cannot be sent, directories that cannot be listed and event
    files that are not regular files are `problems`. `has_new_problems` is set when they change; the
    caller resets it. `is_missing` is set while the log directory itself is not there.
    `projector_folders` contains the folders with a projector config, in the order of discovery.
    `run_names` has the runs of directories whose run has another name, by directory.
    """

    def __init__(
        self,
        logdir: Path,
        series_filter: SeriesFilter,
        name_chars_max: int,
        run_names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.root: Folder = RootFolder(os.fspath(logdir), run_names)
        self.files = files_of(self.root.path)
        self._is_remote = is_remote(self.root.path)
        self._filter = series_filter
        self._name_chars_max = name_chars_max
        self._unusable_entries: dict[Folder, dict[str, str]] = {}
        self._unlistable_folders: dict[Folder, tuple[str, int]] = {}
        self.has_new_problems = False
        self.is_missing = False
        self.projector_folders: dict[Folder, None] = {}

    def problems(self, *, seen_times_min: int = 1) -> dict[str, str]:
        """Return a sentence for each path that cannot be used now.

        Folders are included after `seen_times_min` failures in a row: a network file system fails
        now and then.
        """
        sentences = {
            folder.path: sentence
            for folder, (sentence, times) in self._unlistable_folders.items()
            if times >= seen_times_min
        }
        for unusable in self._unusable_entries.values():
            sentences |= unusable
        return sentences

    def list_dir(self, folder: Folder, *, is_full: bool = False) -> FolderChanges:
        """List the folder if its modification time has changed; with `is_full` in any case.

        A folder that cannot be listed retains its known content, to be listed again later. If it
        was deleted, all files below it are returned as gone.
        """
        path = folder.path

        try:
            status = self.files.stat_dir(path)
            if not is_full and _is_unchanged(folder, status):
                return FolderChanges()
            # Sorted: which of two runs is sent first, and so the order of a list, does not depend
            # on the disk.
            listed: Sequence[Entry] = self.files.list_dir(path)
            entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            return self._note_list_error(folder, error)

        self._unlistable_folders.pop(folder, None)
        self.is_missing = self.is_missing and folder is not self.root
        _record_status(folder, status)
        # A link to a parent has the same entries again, without end.
        return self._update_children(folder, [] if folder.is_link_cycle() else entries)

    def _update_children(self, folder: Folder, entries: Sequence[Entry]) -> FolderChanges:
        unusable: dict[str, str] = {}
        old_folders = {each.name: each for each in folder.folders if not each.is_gone}
        old_files = {each.name: each for each in folder.files}
        folders, files = self._classify_entries(folder, entries, unusable)

        changes = FolderChanges()
        changes.folders = [Folder(folder, name) for name in folders if name not in old_folders]
        changes.files = [FileEntry(folder, name) for name in files if name not in old_files]

        kept_folders = [old_folders.pop(name) for name in folders if name in old_folders]
        kept_files = [old_files.pop(name) for name in files if name in old_files]
        folder.folders = (*kept_folders, *changes.folders)
        folder.files = (*kept_files, *changes.files)

        for entry in old_files.values():
            entry.is_gone = True
        changes.gone = [*old_files.values(), *self._mark_gone(old_folders.values())]

        if unusable:
            self.has_new_problems = (
                self.has_new_problems or self._unusable_entries.get(folder) != unusable
            )
            self._unusable_entries[folder] = unusable
        else:
            self._unusable_entries.pop(folder, None)
        return changes

    def _classify_entries(
        self, folder: Folder, entries: Sequence[Entry], unusable: dict[str, str]
    ) -> tuple[list[str], list[str]]:
        """Return the names of the directories and of the event files among the entries.

        Adds a sentence to `unusable`, by path, for each entry that cannot be used.
        """
        folders, files = [], []
        own_run = folder.run
        for entry in entries:
            # Needs no stat for most entries:
            # https://docs.python.org/3/library/os.html#os.DirEntry.is_dir
            try:
                is_directory = entry.is_dir()
            except OSError as error:  # a circular link, or one through a closed directory
                unusable[entry.path] = f"{printable_path(entry.path)}: {error.strerror}"
                continue
            if is_directory:
                folders.append(entry.name)
                continue

            is_config = entry.name == CONFIG_NAME
            run = folder.projector_run.run if is_config else own_run
            if not (is_config or is_event_file_name(entry.name)) or not self._filter.accepts_run(
                run
            ):
                continue

            problem = self._problem(run, entry)
            if problem is None and is_config and self._is_remote:
                problem = "what the Embedding Projector shows is read from local directories only"
            if problem is not None:
                unusable[entry.path] = f"{printable_path(entry.path)}: {problem}"
            elif is_config:
                self.projector_folders[folder] = None
            else:
                files.append(entry.name)
        return folders, files

    def _problem(self, run: str, entry: Entry) -> str | None:
        """Return why the file cannot be sent, or None: a pipe never ends, a link may be broken."""
        if not _is_utf8(run) or not _is_utf8(entry.name):
            return "its name is not valid UTF-8"
        if len(run) > self._name_chars_max:
            return (
                f"the run's name has {len(run):,} characters; "
                f"the server accepts {self._name_chars_max:,}"
            )
        try:
            if entry.is_file():
                return None
            entry.stat()
        except OSError as error:
            return str(error.strerror)
        return "is not a regular file"

    def _note_list_error(self, folder: Folder, error: OSError) -> FolderChanges:
        folder.mtime_ns = MTIME_UNKNOWN
        if error.errno in _GONE_ERRNOS and folder.parent is not None:
            folder.parent.mtime_ns = MTIME_UNKNOWN  # a new directory may have the same name by now
            return FolderChanges(gone=list(self._mark_gone([folder])))

        times = self._unlistable_folders[folder][1] if folder in self._unlistable_folders else 0
        self._unlistable_folders[folder] = (
            f"{printable_path(folder.path)}: {error.strerror}",
            times + 1,
        )
        self.has_new_problems = self.has_new_problems or times < _REPORTED_FAILURES_MAX
        if error.errno not in _GONE_ERRNOS:
            return FolderChanges()

        self.is_missing = True
        gone = list(self._mark_gone([folder]))  # which drops the sentence
        sentence = (
            f"{printable_path(folder.path)}: this log directory was removed; what was sent is "
            "kept, and files that appear there again are sent too"
        )
        self._unlistable_folders[folder] = sentence, times + 1
        folder.is_gone = False  # it is the log directory itself, which may be created again
        folder.files = folder.folders = ()
        return FolderChanges(gone=gone)

    def _mark_gone(self, folders: Iterable[Folder]) -> Iterator[FileEntry]:
        """Mark folders and everything below them as gone, and yield their files."""
        waiting = list(folders)
        while waiting:
            folder = waiting.pop()
            folder.is_gone = True
            self._unlistable_folders.pop(folder, None)
            self._unusable_entries.pop(folder, None)
            waiting.extend(folder.folders)
            for entry in folder.files:
                entry.is_gone = True
                yield entry


def is_event_file_name(name: str) -> bool:
    """Return whether a file of this name is an event file by TensorBoard's rule.

    Source: `IsSummaryEventsFile` of `tensorboard/backend/event_processing/io_wrapper.py`. Hidden
    files are left out in addition: rsync writes its incomplete copies under such names.
    """
    return "tfevents" in name and not name.startswith(".") and not name.endswith(".profile-empty")


def printable_path(path: str) -> str:
    """Return the path with bytes that are not UTF-8 as escapes, as it can be printed."""
    return path.encode("utf-8", "backslashreplace").decode()


def _is_unchanged(folder: Folder, status: Status) -> bool:
    return (folder.mtime_ns, folder.inode, folder.device) == (
        status.st_mtime_ns,
        status.st_ino,
        status.st_dev,
    )


def _record_status(folder: Folder, status: Status) -> None:
    # Share the parent's number object: copies for hundreds of thousands of folders take megabytes.
    is_like_parent = folder.parent is not None and folder.parent.device == status.st_dev
    folder.device = folder.parent.device if folder.parent and is_like_parent else status.st_dev
    folder.inode = status.st_ino
    is_trusted = time.time() - status.st_mtime > MTIME_TRUSTED_SECONDS
    folder.mtime_ns = status.st_mtime_ns if is_trusted else MTIME_UNKNOWN


def _is_utf8(name: str) -> bool:
    """Return whether a file system's name is valid UTF-8; other bytes arrive as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
