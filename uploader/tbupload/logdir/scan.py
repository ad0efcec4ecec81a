"""A single scan of a log directory: its runs and event files, and the paths it cannot use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tbupload.errors import LogdirError
from tbupload.events.filters import SeriesFilter
from tbupload.events.projector_files import CONFIG_NAME
from tbupload.logdir.entries import FileEntry, Folder
from tbupload.logdir.tree import LogdirTree
from tbupload.remote_files import RemotePath, make_path, open_logdir


@dataclass
class LogdirScan:
    """The result of a scan: files sorted by run and name, and a sentence for each unusable path.

    `bytes` is the size of all files. `projector_folders` are those with a projector config.
    """

    files: list[FoundFile] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    projector_folders: list[Folder] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to send, and nothing to report."""
        return not (self.files or self.problems or self.projector_folders)


def check_logdir(logdir: Path) -> None:
    """Raise LogdirError unless `logdir` is a directory that can be listed."""
    if isinstance(logdir, RemotePath):
        _check_remote(logdir)
        return
    if not is_there(logdir):
        raise LogdirError(
            f"{logdir}: no such directory (create it first if the training job has not started yet)"
        )
    if not logdir.is_dir():
        raise LogdirError(
            f"{logdir} is a file; --logdir takes the directory that contains the runs"
        )
    # Both: without X, names can be listed, and nothing below them can be opened.
    if not os.access(logdir, os.R_OK | os.X_OK):
        raise LogdirError(f"{logdir} cannot be listed: permission denied")


def is_there(logdir: Path) -> bool:
    """Return whether a path exists. Raises LogdirError if that may not be known."""
    try:
        return logdir.exists()
    except PermissionError as error:  # of a directory above it
        raise LogdirError(f"{logdir} cannot be listed: permission denied") from error


def _check_remote(logdir: RemotePath) -> None:
    try:
        open_logdir(str(logdir)).refresh()
    except FileNotFoundError:  # what some file systems raise, and others do not
        pass
    except OSError as error:
        raise LogdirError(f"{logdir} cannot be listed: {error.strerror}") from error
    if not logdir.exists():
        raise LogdirError(f"{logdir}: there is nothing at or below this address")
    if not logdir.is_dir():
        raise LogdirError(f"{logdir} is a file; --logdir takes the address that the runs are below")


def scan_logdir(logdir: Path, series_filter: SeriesFilter, name_chars_max: int) -> LogdirScan:
    """Scan the log directory once, by the rules of `LogdirTree`.

    Links are followed, except to a directory above the link.
    """
    scan = LogdirScan()
    tree = LogdirTree(logdir, series_filter, name_chars_max)
    for entry in _walk(tree):
        file = FoundFile(entry.folder.run, make_path(entry.path))
        try:
            scan.bytes += file.path.stat().st_size
        except OSError as error:
            scan.problems[entry.path] = f"{file.path}: {error.strerror}"
        else:
            scan.files.append(file)
    scan.files.sort(key=lambda file: (file.run, file.path.name))
    scan.problems |= tree.problems()
    scan.projector_folders = list(tree.projector_folders)
    return scan


def has_uploadable_files(logdir: Path, series_filter: SeriesFilter) -> bool:
    """Return whether there is anything to upload or to report; stops at the first such path."""
    tree = LogdirTree(logdir, series_filter, sys.maxsize)
    return next(_walk(tree), None) is not None or bool(tree.projector_folders or tree.problems())


def no_files_text(logdir: Path) -> str:
    """Return the error text for a log directory with nothing to upload."""
    return (
        f'{logdir}: no event files found (files with "tfevents" in their names), '
        f"and no {CONFIG_NAME}"
    )


def _walk(tree: LogdirTree) -> Iterator[FileEntry]:
    waiting = [tree.root]
    while waiting:
        changes = tree.list_dir(waiting.pop())
        yield from changes.files
        waiting.extend(reversed(changes.folders))


@dataclass(frozen=True)
class FoundFile:
    """An event file; `run` is the name of its run as `Folder.run` has it."""

    run: str
    path: Path
