"""The directories and event files of a logdir, as TensorBoard finds them, kept up to date directory by directory.

There may be hundreds of thousands of either, so each takes a few hundred bytes.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tbupload.events.filters import SeriesFilter
from tbupload.events.projector_files import CONFIG_NAME

if TYPE_CHECKING:  # only its name is needed here, and it needs this module's neighbours
    from tbupload.upload.file_upload import FileUpload

MTIME_TRUSTED_SECONDS: Final = 3.0
"""A directory that changed less long ago than this is listed again: another change may bear the same time."""

MTIME_UNKNOWN: Final = -1

_GONE_ERRNOS: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_REPORTED_FAILURES_MAX: Final = 2
"""That a folder cannot be listed is news the first times only."""

_PROJECTOR_ASSETS: Final = ("plugins", "org_tensorflow_tensorboard_projector")
"""Where, below a run, TensorBoard's own writers put a projector config."""

_NO_TAGS: Final[frozenset[str]] = frozenset()


class FileEntry:
    """An event file in a folder, and how the upload stands with it.

    `seen` is its fingerprint when it was last looked at, `changed_at` when that changed (seconds, monotonic clock);
    `committed` and `size` are bytes. `source` is there while there is something to remember of its content.
    """

    __slots__ = (
        "changed_at",
        "committed",
        "folder",
        "is_gone",
        "name",
        "fingerprint",
        "size",
        "upload",
    )

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder = folder
        self.name = name
        self.fingerprint = b""
        self.size = 0
        self.committed = 0
        self.changed_at = 0.0
        self.upload: FileUpload | None = None
        self.is_gone = False

    @property
    def path(self) -> str:
        """Where it is."""
        return f"{self.folder.path}/{self.name}"


class Folder:
    """A directory of the logdir; with event files directly in it, it is a run.

    `mtime_ns` is that of the listing in force, UNKNOWN when it has to be listed again. `tags` are those the upload has
    sent for it, `pending` its files that wait to be sent, `queue` where it waits for its turn with them; `is_flying`
    while a batch with something of it is under way.
    """

    __slots__ = (
        *("device", "files", "folders", "inode", "is_in_flight", "is_gone"),
        *("mtime_ns", "name", "parent", "pending", "queue", "tags"),
    )

    def __init__(self, parent: Folder | None, name: str) -> None:
        self.parent = parent
        self.name = name
        self.device = self.inode = 0
        self.mtime_ns = MTIME_UNKNOWN
        self.folders: Iterable[Folder] = ()
        self.files: Iterable[FileEntry] = ()
        self.tags = _NO_TAGS
        self.pending: list[FileEntry] | None = None
        self.queue: deque[Folder] | None = None
        self.is_in_flight = self.is_gone = False

    @property
    def path(self) -> str:
        """Where it is."""
        return self.name if self.parent is None else f"{self.parent.path}/{self.name}"

    @property
    def run(self) -> str:
        """The run's name: its place in the logdir with slashes, "." for the logdir itself."""
        if self.parent is None:
            return "."
        return self.name if self.parent.parent is None else f"{self.parent.run}/{self.name}"

    @property
    def projector_run(self) -> Folder:
        """The folder whose run a projector config in this one is of: one among a run's assets is that run's."""
        above = self.parent
        if above is None or above.parent is None or (above.name, self.name) != _PROJECTOR_ASSETS:
            return self
        return above.parent

    def is_link_cycle(self) -> bool:
        """Whether it is one of the directories it lies in: links that go in circles."""
        above = self.parent
        while above is not None:
            if (above.device, above.inode) == (self.device, self.inode):
                return True
            above = above.parent
        return False


@dataclass(slots=True)
class FolderChanges:
    """What a look into a folder found: folders and files that are new, in the order of their names, and files gone."""

    folders: list[Folder] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)
    gone: list[FileEntry] = field(default_factory=list)


class LogdirTree:
    """A logdir's folders from `root` on; nothing is known of one until `look_into` was called for it.

    A run is a directory with an event file directly in it; links are followed. Runs the filter leaves out have no
    files; names that cannot be sent, directories that cannot be listed and event files that are no regular files are
    `problems`. `has_news` when there are others than before; whoever reads them resets it. `projector_folders` are
    those with a projector config, in the order they were found in.
    """

    def __init__(self, logdir: Path, series_filter: SeriesFilter, name_chars_max: int) -> None:
        self.root = Folder(None, os.fspath(logdir))
        self._filter = series_filter
        self._name_chars_max = name_chars_max
        self._unusable_entries: dict[Folder, dict[str, str]] = {}
        self._unlistable_folders: dict[Folder, tuple[str, int]] = {}
        self.has_new_problems = False
        self.projector_folders: dict[Folder, None] = {}

    def problems(self, *, seen_times_min: int = 1) -> dict[str, str]:
        """A sentence for each path that cannot be used now; for folders when that was found so many times in a row."""
        sentences = {
            folder.path: sentence
            for folder, (sentence, times) in self._unlistable_folders.items()
            if times >= seen_times_min
        }
        for unusable in self._unusable_entries.values():
            sentences |= unusable
        return sentences

    def list_dir(self, folder: Folder, *, is_full: bool = False) -> FolderChanges:
        """Lists the folder if it may have changed, or anyway (`is_full`): changed times are not to be trusted for ever.

        A folder that cannot be listed for now keeps what is known of it; one that is gone takes all with it.
        """
        path = folder.path
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path takes as long to make as the call itself
            if not is_full and _is_unchanged(folder, status):
                return FolderChanges()
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            return self._note_list_error(folder, error)
        self._unlistable_folders.pop(folder, None)
        _record_status(folder, status)
        return self._update_children(folder, [] if folder.is_link_cycle() else entries)

    def _update_children(self, folder: Folder, entries: list[os.DirEntry[str]]) -> FolderChanges:
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
        self, folder: Folder, entries: Iterable[os.DirEntry[str]], unusable: dict[str, str]
    ) -> tuple[list[str], list[str]]:
        """The names of the directories and of the event files among the entries."""
        folders, files = [], []
        own_run = folder.run
        for entry in entries:
            try:
                is_directory = entry.is_dir()
            except OSError as error:  # a link that goes in circles, or through what is closed to us
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
            if problem is not None:
                unusable[entry.path] = f"{printable_path(entry.path)}: {problem}"
            elif is_config:
                self.projector_folders[folder] = None
            else:
                files.append(entry.name)
        return folders, files

    def _problem(self, run: str, entry: os.DirEntry[str]) -> str | None:
        """Why the file cannot be sent, if so: a pipe would never end, a link may lead nowhere."""
        if not _is_utf8(run) or not _is_utf8(entry.name):
            return "its name is not valid UTF-8"
        if len(run) > self._name_chars_max:
            return f"the run's name has {len(run):,} characters, more than the server's {self._name_chars_max:,}"
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
            folder.parent.mtime_ns = (
                MTIME_UNKNOWN  # which may show that something else bears the name now
            )
            return FolderChanges(gone=list(self._mark_gone([folder])))
        times = self._unlistable_folders[folder][1] if folder in self._unlistable_folders else 0
        self._unlistable_folders[folder] = (
            f"{printable_path(folder.path)}: {error.strerror}",
            times + 1,
        )
        self.has_new_problems = self.has_new_problems or times < _REPORTED_FAILURES_MAX
        if error.errno not in _GONE_ERRNOS:
            return FolderChanges()
        gone = list(self._mark_gone([folder]))
        self._unlistable_folders[folder] = (
            f"{printable_path(folder.path)}: {error.strerror}",
            times + 1,
        )
        folder.is_gone = False  # the logdir itself may come back
        folder.files = folder.folders = ()
        return FolderChanges(gone=gone)

    def _mark_gone(self, folders: Iterable[Folder]) -> Iterator[FileEntry]:
        """Marks folders and all below as gone; yields their files."""
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
    """Whether a file of this name holds events: TensorBoard's rule, less hidden files, as rsync leaves them."""
    return "tfevents" in name and not name.startswith(".") and not name.endswith(".profile-empty")


def printable_path(path: str) -> str:
    """A path that can be printed, whatever bytes are in it."""
    return path.encode("utf-8", "backslashreplace").decode()


def _is_unchanged(folder: Folder, status: os.stat_result) -> bool:
    return (folder.mtime_ns, folder.inode, folder.device) == (
        status.st_mtime_ns,
        status.st_ino,
        status.st_dev,
    )


def _record_status(folder: Folder, status: os.stat_result) -> None:
    is_like_parent = folder.parent is not None and folder.parent.device == status.st_dev
    folder.device = (
        folder.parent.device if folder.parent and is_like_parent else status.st_dev
    )  # one number for all
    folder.inode = status.st_ino
    is_settled = time.time() - status.st_mtime > MTIME_TRUSTED_SECONDS
    folder.mtime_ns = status.st_mtime_ns if is_settled else MTIME_UNKNOWN


def _is_utf8(name: str) -> bool:
    """Whether a name from the file system can be written as UTF-8: bytes that are no text arrive as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
