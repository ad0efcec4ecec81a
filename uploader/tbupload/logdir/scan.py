"""Finds the runs and event files of a logdir, as TensorBoard finds them, and says what it could not look at."""

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


@dataclass(slots=True)
class LogdirScan:
    """What one walk found: files by run and name, in that order, and a sentence for each path that could not be used.

    `bytes` is the size of all the files together. `projector_folders` are those with a projector config.
    """

    files: list[FoundFile] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    bytes: int = 0
    projector_folders: list[Folder] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be sent, and nothing to complain about."""
        return not (self.files or self.problems or self.projector_folders)


def check_logdir(logdir: Path) -> None:
    """Raises LogdirError unless `logdir` is a directory that can be listed."""
    if not logdir.exists():
        raise LogdirError(
            f"{logdir}: no such directory (make it first if the training job has not started yet)"
        )
    if not logdir.is_dir():
        raise LogdirError(f"{logdir} is a file; --logdir takes the directory that holds the runs")
    if not os.access(logdir, os.R_OK | os.X_OK):
        raise LogdirError(f"{logdir} cannot be listed: permission denied")


def scan_logdir(logdir: Path, series_filter: SeriesFilter, name_chars_max: int) -> LogdirScan:
    """Walks the logdir once; links are followed, but never back into a directory that is being walked.

    What is found, and what is a problem instead, is as `LogdirTree` says.
    """
    scan = LogdirScan()
    tree = LogdirTree(logdir, series_filter, name_chars_max)
    for entry in _walk(tree):
        found = FoundFile(entry.folder.run, Path(entry.path))
        try:
            scan.bytes += found.path.stat().st_size
        except OSError as error:
            scan.problems[entry.path] = f"{found.path}: {error.strerror}"
        else:
            scan.files.append(found)
    scan.files.sort(key=lambda found: (found.run, found.path.name))
    scan.problems |= tree.problems()
    scan.projector_folders = list(tree.projector_folders)
    return scan


def has_uploadable_files(logdir: Path, series_filter: SeriesFilter) -> bool:
    """Whether there is anything to upload, or to complain about, in the logdir; looks no further than that."""
    tree = LogdirTree(logdir, series_filter, sys.maxsize)
    return next(_walk(tree), None) is not None or bool(tree.projector_folders or tree.problems())


def no_files_text(logdir: Path) -> str:
    """What is said of a logdir that has nothing to upload."""
    return f'{logdir}: no event files found (files with "tfevents" in their names), and no {CONFIG_NAME}'


def _walk(tree: LogdirTree) -> Iterator[FileEntry]:
    waiting = [tree.root]
    while waiting:
        changes = tree.list_dir(waiting.pop())
        yield from changes.files
        waiting.extend(reversed(changes.folders))


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An event file; `run` is its directory relative to the logdir, with slashes, "." for the logdir itself."""

    run: str
    path: Path
