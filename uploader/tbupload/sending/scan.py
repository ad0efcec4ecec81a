"""Finds the runs and event files of a logdir, as TensorBoard finds them, and says what it could not look at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tbupload.errors import LogdirError
from tbupload.reading.filters import SeriesFilter

Identity = tuple[int, int]
"""Device and inode: what a directory is, whatever links lead to it."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """An event file; `run` is its directory relative to the logdir, with slashes, "." for the logdir itself."""

    run: str
    path: Path


@dataclass(slots=True)
class Scan:
    """What one walk found: files by run and name, in that order, and a sentence for each path that could not be used.

    `bytes` is the size of all the files together.
    """

    files: list[FoundFile] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    run: str
    ancestors: frozenset[Identity]


def check_logdir(logdir: Path) -> None:
    """Raises LogdirError unless `logdir` is a directory that can be listed."""
    if not logdir.exists():
        raise LogdirError(f"{logdir}: no such directory (make it first if the training job has not started yet)")
    if not logdir.is_dir():
        raise LogdirError(f"{logdir} is a file; --logdir takes the directory that holds the runs")
    if not os.access(logdir, os.R_OK | os.X_OK):
        raise LogdirError(f"{logdir} cannot be listed: permission denied")


def is_event_file_name(name: str) -> bool:
    """Whether a file of this name holds events: TensorBoard's rule, less hidden files, as rsync leaves them."""
    return "tfevents" in name and not name.startswith(".") and not name.endswith(".profile-empty")


def scan_logdir(logdir: Path, series_filter: SeriesFilter, name_chars_max: int) -> Scan:
    """Walks the logdir once; links are followed, but never back into a directory that is being walked.

    A run is a directory with an event file directly in it. Runs the filter leaves out are not listed; names that cannot
    be sent, directories that cannot be listed and event files that are no regular files become problems.
    """
    scan = Scan()
    waiting = [_Directory(os.fspath(logdir), ".", frozenset())]
    while waiting:
        waiting.extend(_look_into(waiting.pop(), scan, series_filter, name_chars_max))
    scan.files.sort(key=lambda found: (found.run, found.path.name))
    return scan


def _look_into(
    directory: _Directory, scan: Scan, series_filter: SeriesFilter, name_chars_max: int
) -> Iterator[_Directory]:
    """Adds the directory's event files to the scan and yields the directories in it."""
    try:
        status = Path(directory.path).stat()
        with os.scandir(directory.path) as listing:
            entries = list(listing)
    except OSError as error:
        scan.problems[directory.path] = f"{_readable(directory.path)}: {error.strerror}"
        return
    identity = (status.st_dev, status.st_ino)
    if identity in directory.ancestors:
        return
    ancestors = directory.ancestors | {identity}
    for entry in entries:
        if _is_directory(entry, scan):
            run = entry.name if directory.run == "." else f"{directory.run}/{entry.name}"
            yield _Directory(entry.path, run, ancestors)
        elif is_event_file_name(entry.name) and series_filter.accepts_run(directory.run):
            _add_file(scan, directory.run, entry, name_chars_max)


def _is_directory(entry: os.DirEntry[str], scan: Scan) -> bool:
    """Whether it is one, or leads to one; a link that goes in circles, or through what is closed to us, is trouble."""
    try:
        return entry.is_dir()
    except OSError as error:
        scan.problems[entry.path] = f"{_readable(entry.path)}: {error.strerror}"
        return False


def _add_file(scan: Scan, run: str, entry: os.DirEntry[str], name_chars_max: int) -> None:
    problem = None
    size = 0
    if not _is_text(run) or not _is_text(entry.name):
        problem = "its name is not valid UTF-8"
    elif len(run) > name_chars_max:
        problem = f"the run's name has {len(run):,} characters, more than the server's {name_chars_max:,}"
    else:
        size, problem = _file_size(entry)
    if problem is None:
        scan.files.append(FoundFile(run, Path(entry.path)))
        scan.bytes += size
    else:
        scan.problems[entry.path] = f"{_readable(entry.path)}: {problem}"


def _file_size(entry: os.DirEntry[str]) -> tuple[int, str | None]:
    """The file's size in bytes, or why it cannot be read: a pipe would never end, a link may lead nowhere."""
    try:
        status = entry.stat()
    except OSError as error:
        return 0, error.strerror
    return status.st_size, None if stat.S_ISREG(status.st_mode) else "is not a regular file"


def _is_text(name: str) -> bool:
    """Whether a name from the file system can be written as UTF-8: bytes that are no text arrive as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _readable(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
