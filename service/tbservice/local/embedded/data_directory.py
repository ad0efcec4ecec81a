"""The directory that holds everything an embedded instance keeps: its layout, its lock, its secrets and its ports.

lock            held while an instance runs
secrets.json    generated passwords and keys, mode 0600
owner-token     the first workspace's owner token, mode 0600, for whoever runs the instance
ports.json      the ports of the last start
seaweedfs.pem   the key and certificate of SeaweedFS's inner ports, mode 0600
postgres/       PostgreSQL's files
objects/        SeaweedFS's files
run/            a lock for each server process, which holds its id
log/            what the servers print
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tbservice.errors import StartupError
from tbservice.local.embedded.ports import choose_ports

FREE_BYTES_MIN = 256 * 1024 * 1024
"""Bytes that must be free at a start: an empty instance takes about 60 MB, and PostgreSQL stops hard on a full disk."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Passwords and keys of the two servers; letters, digits, `-` and `_` only, so that they need no quoting."""

    postgres_password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    tbhub_password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    s3_access_key: str = field(default_factory=lambda: secrets.token_hex(10), repr=False)
    s3_secret_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    jwt_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class DataDirectory:
    """An instance's directory, locked from `open` to `close`."""

    def __init__(self, path: Path, lock: int, kept_secrets: Secrets) -> None:
        """Use `open`."""
        self.path = path
        self.secrets = kept_secrets
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Creates the directory where it is missing, locks it and reads or makes its secrets.

        Raises StartupError when it cannot be written, belongs to something or someone else, is full or is in use.
        """
        path = path.expanduser().absolute()
        try:
            _create(path)
            lock = _lock(path)
            _check_space(path)
            return cls(path, lock, _load_secrets(path))
        except OSError as error:
            raise StartupError(_explain(path, error)) from error

    def close(self) -> None:
        """Gives the directory free for another instance."""
        os.close(self._lock)

    @property
    def is_new(self) -> bool:
        """Tells whether no instance has ever been ready here."""
        return not (self.path / "postgres").exists()

    def lock_file(self, name: str) -> Path:
        """Where a server process named `name` writes its id."""
        return self.path / "run" / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        """Where a server process named `name` prints."""
        return self.path / "log" / f"{name}.log"

    def write(self, file: Path, text: str) -> None:
        """Writes a file of mode 0600 in this directory so that a crash leaves the old one or the new one."""
        _write_atomically(file, text)

    def choose_ports(
        self, names: Iterable[str], is_usable: Callable[[int], bool]
    ) -> dict[str, int]:
        """A free loopback port for each name, the same as at the last start where possible; remembered for the next."""
        saved = self.saved_ports()
        chosen = choose_ports(names, saved, is_usable)
        _write_atomically(self._ports_file, json.dumps(saved | chosen, indent=2))
        return chosen

    def saved_ports(self) -> dict[str, int]:
        """The ports that were chosen last, by name."""
        remembered: dict[str, int] = (
            json.loads(self._ports_file.read_text()) if self._ports_file.exists() else {}
        )
        return remembered

    @property
    def _ports_file(self) -> Path:
        return self.path / "ports.json"


def _create(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StartupError(f"{path} is a file: choose a directory with --data-dir")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise StartupError(
            f"{path} belongs to another user: run as that user, or choose another directory with --data-dir"
        )
    if not (path / "lock").exists() and any(path.iterdir()):
        raise StartupError(
            f"{path} holds something else: choose an empty directory with --data-dir"
        )
    path.chmod(
        stat.S_IMODE(path.stat().st_mode) & ~0o066
    )  # one made by hand: others could exchange files in it


def _lock(path: Path) -> int:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode().strip()
        os.close(lock)
        raise StartupError(
            f"another tbservice (process {holder}) is running on {path}: use it, stop it, or choose another --data-dir"
        ) from None
    os.ftruncate(lock, 0)
    os.write(lock, b"%d\n" % os.getpid())
    for name in ("run", "log"):
        (path / name).mkdir(mode=0o700, exist_ok=True)
    return lock


def _check_space(path: Path) -> None:
    free = shutil.disk_usage(path).free
    if free < FREE_BYTES_MIN:
        raise StartupError(
            f"the disk of {path} has {free >> 20} MB free and {FREE_BYTES_MIN >> 20} MB are needed: "
            "make room, or choose another directory with --data-dir"
        )


def _load_secrets(path: Path) -> Secrets:
    file = path / "secrets.json"
    if file.exists():
        return Secrets(**json.loads(file.read_text()))
    if (path / "postgres").exists():
        raise StartupError(
            f"{file} is missing, and without it the database in {path} stays shut: restore it from a backup"
        )
    made = Secrets()
    _write_atomically(file, json.dumps(asdict(made), indent=2))
    return made


def _write_atomically(file: Path, text: str) -> None:
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as stream:  # noqa: PTH123 - a descriptor, opened with its mode
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    draft.replace(file)


def _explain(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full: make room, or choose another directory with --data-dir"
    return f"{path} cannot be written ({error.strerror}): make it writable, or choose another directory with --data-dir"
