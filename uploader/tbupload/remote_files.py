"""Log directories behind URLs, such as `s3://` and `gs://`, read with the package fsspec.

The rest of the uploader works with paths, opened files and their status. A `RemotePath` is a path
whose methods ask fsspec; a `RemoteLogdir` answers what `os.stat` and `os.scandir` answer of a local
one, from one listing of everything below the URL that is repeated now and then: object stores
charge for requests, and answer each of them slowly. Local files never come here.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path, PosixPath
from typing import Any, BinaryIO, Final, NamedTuple, Union

from tbupload.errors import UsageError

LISTING_SECONDS: Final = 5.0
"""Age from which the listing of a remote log directory is read again; `--poll-seconds` sets it."""

LISTINGS_PER_TIME: Final = 10.0
"""A listing that takes long is repeated after this many times of its duration."""

READ_BYTES: Final = 256 << 10
"""Smallest range that is read of a remote file."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
"""The beginning of a URL; a path that pathlib has normalized never has two slashes there."""

_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs"}
"""Extras of our package, by scheme; other schemes need the package that fsspec names."""

_ERROR_CHARS_MAX: Final = 300


class RemoteStatus(NamedTuple):
    """The status of a remote file. `st_ino` is another number for another version of the object."""

    st_size: int
    st_mtime: float
    st_mtime_ns: int
    st_ino: int
    st_dev: int = 0


Status = Union[os.stat_result, RemoteStatus]
Entry = Union["os.DirEntry[str]", "RemoteEntry"]
"""A file or a directory, as a listing has it."""


class RemoteEntry(NamedTuple):
    """A file or directory of a listing, as `os.DirEntry`."""

    name: str
    path: str
    status: RemoteStatus | None  # None for a directory

    def is_dir(self) -> bool:
        """Return whether other names are below this one."""
        return self.status is None

    def is_file(self) -> bool:
        """Return whether this is an object."""
        return self.status is not None

    def stat(self) -> Status:
        """Return the status of a file."""
        assert self.status is not None  # noqa: S101 - the caller has asked whether it is a file
        return self.status


def is_remote(text: str) -> bool:
    """Return whether a log directory, or a path below one, is named by a URL."""
    return _URL.match(text) is not None


def make_path(text: str) -> Path:
    """Return the path that a text names: that of a URL, or of this machine."""
    if text.startswith("file:///"):
        return Path(text[len("file://") :])
    return RemotePath(text) if is_remote(text) else Path(text)


def is_local_directory(path: Path) -> bool:
    """Return whether a path is that of a directory of this machine."""
    return not isinstance(path, RemotePath) and path.is_dir()


class RemotePath(PosixPath):
    """The path of a remote file or directory, whose text is its URL.

    Has the methods of `Path` that are used for log directories; all errors are OSError.
    """

    def __str__(self) -> str:
        """Return the URL."""
        return super().__str__().replace(":/", "://", 1)

    def open(self, *_mode: Any, **_options: Any) -> RemoteFile:  # type: ignore[override] # bytes only
        """Open the file to read bytes; the object that it is now is read, or reading fails."""
        return _logdir_of(str(self)).open(str(self))

    def stat(self, **_options: Any) -> Status:  # type: ignore[override] # no mode, no owner
        """Return the status at the last listing."""
        return _logdir_of(str(self)).stat(str(self))

    def exists(self, **_options: Any) -> bool:
        """Return whether there was something of this name at the last listing."""
        return self.is_dir() or self.is_file()

    def is_dir(self, **_options: Any) -> bool:
        """Return whether something was below this name at the last listing."""
        return _logdir_of(str(self)).find(str(self)) == "directory"

    def is_file(self, **_options: Any) -> bool:
        """Return whether there was an object of this name at the last listing."""
        return _logdir_of(str(self)).find(str(self)) == "file"

    def expanduser(self) -> RemotePath:
        """Return the path itself: `~` is a name like any other."""
        return self

    def resolve(self, *_strict: Any, **_options: Any) -> RemotePath:
        """Return the path itself: it is absolute, and there are no links."""
        return self

    def absolute(self) -> RemotePath:
        """Return the path itself."""
        return self


class RemoteFile(io.BufferedReader):
    """An opened remote file, and its status when it was opened."""

    def __init__(self, file: Any, path: str, status: RemoteStatus) -> None:
        super().__init__(_RangeReader(file, path, status.st_size), READ_BYTES)
        self.status = status


class _RangeReader(io.RawIOBase):
    """Reads ranges of a file of fsspec."""

    def __init__(self, file: Any, path: str, size: int) -> None:
        super().__init__()
        self._file = file
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), max(0, self._size - self._position))
        if not wanted:
            return 0
        with _os_errors(self._path):
            self._file.seek(self._position)
            content = self._file.read(wanted)
        memoryview(buffer).cast("B")[: len(content)] = content
        self._position += len(content)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):  # whatever a file system raises: it was read
                self._file.close()
        super().close()


def open_unbuffered(path: Path) -> RemoteFile | io.FileIO:
    """Open a file to read it in few large pieces."""
    if isinstance(path, RemotePath):
        return path.open()
    return io.FileIO(path)


def file_status(file: BinaryIO | io.FileIO) -> Status:
    """Return the status of an opened file."""
    return file.status if isinstance(file, RemoteFile) else os.fstat(file.fileno())


class RemoteLogdir:
    """Everything below a URL, as it was at the last listing.

    `period_seconds` is the age from which `list_dir` and `stat_dir` list it again.
    """

    def __init__(self, url: str) -> None:
        self.period_seconds = LISTING_SECONDS
        self._url = url
        self._fs, self._root = _open_file_system(url)
        self._directories: dict[str, dict[str, RemoteEntry]] = {}
        self._is_file = False
        self._listed_at = 0.0
        self._due_at = 0.0

    def refresh(self) -> None:
        """List everything again. Raise OSError, and keep the last listing, if that fails."""
        began = time.monotonic()
        with _os_errors(self._url):
            found = self._fs.find(self._root, detail=True)
            if not found:  # which some versions say of what they may not list
                self._fs.ls(self._root)
        directories: dict[str, dict[str, RemoteEntry]] = {}
        for name, info in found.items():
            relative = name[len(self._root) :].lstrip("/")
            if info.get("type", "file") == "file" and relative:
                self._add(directories, relative, _make_status(info))
        self._directories, self._is_file = directories, self._root in found
        now = time.monotonic()
        self._listed_at = time.time()
        self._due_at = now + max(self.period_seconds, LISTINGS_PER_TIME * (now - began))

    def list_dir(self, path: str) -> list[RemoteEntry]:
        """Return the files and directories directly below a directory."""
        self._refresh_if_due()
        if path not in self._directories:
            raise _missing(path)
        return list(self._directories[path].values())

    def stat_dir(self, path: str) -> Status:
        """Return the status of a directory, which changes with every listing."""
        self._refresh_if_due()
        if path not in self._directories:
            raise _missing(path)
        number = _hash(path)
        return RemoteStatus(0, self._listed_at, int(self._listed_at * 1e9), number)

    def stat(self, path: str) -> Status:
        """Return the status of a file."""
        parent, _, name = path.rpartition("/")
        entry = self._directories.get(parent, {}).get(name)
        if entry is None or entry.status is None:
            raise _missing(path)
        return entry.status

    def stat_fresh(self, path: str) -> Status:
        """Return the same: what is fresh is the listing."""
        return self.stat(path)

    def find(self, path: str) -> str | None:
        """Return "directory" or "file" for what is at a path; None for nothing, or for an error."""
        with contextlib.suppress(OSError):
            self._refresh_if_due()
        if path in self._directories:
            return "directory"
        if path == self._url and self._is_file:
            return "file"
        parent, _, name = path.rpartition("/")
        return "file" if name in self._directories.get(parent, {}) else None

    def open(self, path: str) -> RemoteFile:
        """Open a file; raises OSError."""
        name = f"{self._root.rstrip('/')}/{path[len(self._url) :].lstrip('/')}"
        with _os_errors(path):
            # No cache: what is read is known, and a cache would keep megabytes per file.
            file = self._fs.open(name, "rb", cache_type="none")
            info = getattr(file, "details", None) or self._fs.info(name)
            return RemoteFile(file, path, _make_status(info))

    def _refresh_if_due(self) -> None:
        if time.monotonic() >= self._due_at:
            self.refresh()

    def _add(
        self, directories: dict[str, dict[str, RemoteEntry]], relative: str, status: RemoteStatus
    ) -> None:
        """Add a file, and the directories above it."""
        folder, (*parents, name) = self._url, relative.split("/")
        for parent in parents:
            path = f"{folder}/{parent}"
            if path not in directories:
                directories.setdefault(folder, {})[parent] = RemoteEntry(parent, path, None)
                directories[path] = {}
            folder = path
        entries = directories.setdefault(folder, {})
        if name and name not in entries:  # the name may be a directory's as well
            entries[name] = RemoteEntry(name, f"{folder}/{name}", status)


_logdirs: Final[dict[str, RemoteLogdir]] = {}
"""The remote log directories of this process, by URL."""


def open_logdir(url: str) -> RemoteLogdir:
    """Return the log directory of a URL, the same one for every call.

    Raises UsageError if the package for its kind of URL is not installed.
    """
    logdir = _logdirs.get(url)
    if logdir is None:
        logdir = _logdirs[url] = RemoteLogdir(url)
    return logdir


def _logdir_of(path: str) -> RemoteLogdir:
    """Return the log directory that a path is in, or the one that it is."""
    for url, logdir in _logdirs.items():
        if path == url or path.startswith(f"{url}/"):
            return logdir
    return open_logdir(path)


def _open_file_system(url: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it."""
    scheme = url.partition("://")[0]
    try:
        import fsspec  # noqa: PLC0415 - an extra

        fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        extra = _EXTRAS.get(scheme.lower())
        advice = (
            f"install tbhub's wheel with the extra {extra!r}"
            if extra
            else f"install the package that fsspec needs for it ({_one_line(error)})"
        )
        raise UsageError(f"{url}: to read {scheme}:// directly, {advice}") from error
    except Exception as error:  # each file system has errors of its own
        raise UsageError(f"{url}: {_one_line(error)}") from error
    return fs, str(root).rstrip("/")


def _make_status(info: Mapping[str, Any]) -> RemoteStatus:
    """Return the status of fsspec's information about a file; its fields depend on the system."""
    times = (info.get(key) for key in ("LastModified", "mtime", "updated", "created"))
    modified = next((time for time in times if time), 0.0)
    if isinstance(modified, str):
        with contextlib.suppress(ValueError):
            modified = datetime.fromisoformat(modified.replace("Z", "+00:00"))
    seconds = modified.timestamp() if isinstance(modified, datetime) else modified
    seconds = float(seconds) if isinstance(seconds, (int, float)) else 0.0
    version = [info.get(key) for key in ("ETag", "etag", "generation", "ino", "created")]
    return RemoteStatus(
        int(info.get("size") or 0), seconds, int(seconds * 1e9), _hash(repr(version))
    )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _missing(path: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
    """Turn what a file system raises in the block into OSError with a number and one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise _missing(path) from error
    except PermissionError as error:
        raise PermissionError(errno.EACCES, _one_line(error), path) from error
    except Exception as error:  # each file system has errors of its own
        raise OSError(errno.EIO, _one_line(error), path) from error


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_ERROR_CHARS_MAX]


class LocalFiles:
    """How the directories and files of this machine are listed, as a `RemoteLogdir` is."""

    period_seconds = 0.0
    stat_dir: Callable[[str], os.stat_result] = staticmethod(os.stat)
    stat: Callable[[str], os.stat_result] = staticmethod(os.stat)

    def refresh(self) -> None:
        """Do nothing: nothing is kept."""

    def list_dir(self, path: str) -> list[os.DirEntry[str]]:
        """Return the entries of a directory."""
        with os.scandir(path) as listing:
            return list(listing)

    def stat_fresh(self, path: str) -> os.stat_result:
        """Return a file's status by opening it: NFS asks its server then, and may not otherwise."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


def files_of(root: str) -> LocalFiles | RemoteLogdir:
    """Return how the log directory with this path or URL is listed."""
    return open_logdir(root) if is_remote(root) else LocalFiles()
