"""The directories and event files of a log directory, as records the watcher and the upload share.

An upload may have hundreds of thousands of either, so both classes have slots and neither stores a
path: a path is joined from the names of the parents when it is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

MTIME_UNKNOWN: Final = -1
"""`Folder.mtime_ns` of a directory that has to be listed again."""

_PROJECTOR_ASSETS: Final = ("plugins", "org_tensorflow_tensorboard_projector")
"""Directories below a run in which TensorBoard's plugin assets put a projector config.

Source: `tensorboard/backend/event_processing/plugin_asset_util.py` (`_PLUGINS_DIR`) and
`tensorboard/plugins/projector/metadata.py`.
"""

_NO_TAGS: Final[frozenset[str]] = frozenset()
_SAME_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class FileEntry:
    """An event file in a folder.

    The watcher sets `fingerprint` (size, mtime and inode when the file was last checked), `size`
    (bytes) and `changed_at` (when the fingerprint changed, seconds of the watcher's clock). The
    upload sets `committed`, the bytes the server has committed. Everything else an upload knows of
    a file is in its own `FileCache`, by entry: it is needed for few files at a time.
    """

    __slots__ = ("changed_at", "committed", "fingerprint", "folder", "is_gone", "name", "size")

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder = folder
        self.name = name
        self.fingerprint = b""
        self.size = 0
        self.committed = 0
        self.changed_at = 0.0
        self.is_gone = False

    @property
    def path(self) -> str:
        """Return the path below the log directory, which is its first component."""
        return f"{self.folder.path}/{self.name}"


class Folder:
    """A directory of the log directory; it is a run if event files are directly in it.

    The tree sets `mtime_ns` (of the current listing, or MTIME_UNKNOWN), `device` and `inode`. The
    scheduler sets `tags` (those sent for the run), `pending` (files waiting to be sent), `queue`
    (the one the folder is in) and `is_in_flight` (whether a batch being sent contains its data).
    """

    __slots__ = (
        "device",
        "files",
        "folders",
        "inode",
        "is_gone",
        "is_in_flight",
        "mtime_ns",
        "name",
        "parent",
        "pending",
        "queue",
        "tags",
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
        """Return the path below the log directory, which is its first component."""
        return self.name if self.parent is None else f"{self.parent.path}/{self.name}"

    @property
    def run(self) -> str:
        """Return the run's name: the path relative to the log directory, "." for that itself.

        Source: `tensorboard/backend/event_processing/plugin_event_multiplexer.py`
        (`AddRunsFromDirectory`). The separator is a slash on every system. Directories of an
        export may stand for names that no directory can have: see `RootFolder`.
        """
        names: list[str] = []
        folder: Folder = self
        while folder.parent is not None:
            names.append(folder.name)
            folder = folder.parent
        directory = "/".join(reversed(names)) or "."
        return folder.run_names.get(directory, directory)

    @property
    def run_names(self) -> Mapping[str, str]:
        """Return the names of runs by directory, where they differ; of the log directory."""
        return _SAME_NAMES

    @property
    def projector_run(self) -> Folder:
        """Return the folder whose run shows a projector config that lies in this one.

        A config among a run's plugin assets belongs to that run.
        """
        above = self.parent
        if above is None or above.parent is None or (above.name, self.name) != _PROJECTOR_ASSETS:
            return self
        return above.parent

    def is_link_cycle(self) -> bool:
        """Return whether the folder is one of its own parents, by way of symbolic links."""
        above = self.parent
        while above is not None:
            if (above.device, above.inode) == (self.device, self.inode):
                return True
            above = above.parent
        return False


class RootFolder(Folder):
    """The log directory; `run_names` has the runs of directories that are named otherwise."""

    __slots__ = ("_run_names",)

    def __init__(self, path: str, run_names: Mapping[str, str] = _SAME_NAMES) -> None:
        super().__init__(None, path)
        self._run_names = run_names

    @property
    def run_names(self) -> Mapping[str, str]:
        """Return the names of runs by directory, where they differ."""
        return self._run_names


@dataclass
class FolderChanges:
    """Changes found by listing a folder: new folders and files (by name), and deleted files."""

    folders: list[Folder] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)
    gone: list[FileEntry] = field(default_factory=list)
