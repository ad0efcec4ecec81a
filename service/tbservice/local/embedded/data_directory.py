"""The data directory of an embedded instance: its layout, lock, secrets and ports.

lock            locked while an instance runs
secrets.json    generated passwords and keys, mode 0600
owner-token     the first workspace's owner token, mode 0600, for the user who runs the instance
receipt-keys    keys that sign receipts of deletion, mode 0600
ports.json      the ports of the last start
service.json    process id and public URL of the last `tbservice up`
seaweedfs.pem   key and certificate of SeaweedFS's internal ports, mode 0600
postgres/       PostgreSQL's files
objects/        SeaweedFS's files
run/            a lock file per server process, which contains its id
log/            output of the servers
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
"""Free bytes that a start requires.

An empty instance takes about 60 MB, and PostgreSQL panics if it cannot write its log.
"""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Passwords and keys of the two servers, of letters, digits, `-` and `_`: no quoting needed."""

    postgres_password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    tbhub_password: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    s3_access_key: str = field(default_factory=lambda: secrets.token_hex(10), repr=False)
    s3_secret_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    jwt_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)


class DataDirectory:
    """An instance's directory, locked from `open` to `close`."""

    def __init__(self, path: Path, lock: int, instance_secrets: Secrets) -> None:
        """Use `open`."""
        self.path = path
        self.secrets = instance_secrets
        self._lock = lock

    @classmethod
    def open(cls, path: Path) -> DataDirectory:
        """Create the directory if it is missing, lock it, and read or generate its secrets.

        Raises StartupError if it cannot be written, has other content or another owner, is full,
        or is in use.
        """
        path = path.expanduser().absolute()
        try:
            _create(path)
            lock = _lock(path)
            _check_space(path)
            return cls(path, lock, _load_secrets(path))
        except OSError as error:
            raise StartupError(_explain(path, error)) from error

    @classmethod
    def attach(cls, path: Path) -> DataDirectory:
        """Return the directory of a running instance, without its lock: nothing is written."""
        return cls(path, -1, _load_secrets(path))

    @staticmethod
    def is_in_use(path: Path) -> bool:
        """Return whether an instance runs on the directory."""
        try:
            lock = os.open(path / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def close(self) -> None:
        """Unlock the directory for another instance."""
        os.close(self._lock)

    @property
    def is_new(self) -> bool:
        """Return whether no instance has ever been started here."""
        return not (self.path / "postgres").exists()

    def lock_file(self, name: str) -> Path:
        """Return the file that the server process `name` locks and writes its id to."""
        return self.path / "run" / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        """Return the file for the output of the server process `name`."""
        return self.path / "log" / f"{name}.log"

    def write(self, file: Path, text: str) -> None:
        """Write a file of this directory atomically, with mode 0600."""
        _write_atomically(file, text)

    def read_receipt_keys(self) -> str:
        """Return the keys of receipts; the first one is made when they are first asked for."""
        file = self.path / "receipt-keys"
        if not file.exists():
            # As `tbservice receipt-key` makes it, whose import is slow: any 32 bytes are a key.
            _write_atomically(file, f"{secrets.token_urlsafe(32)}\n")
        return file.read_text()

    def choose_ports(
        self, names: Iterable[str], is_usable: Callable[[int], bool], *, keeps_saved: bool
    ) -> dict[str, int]:
        """Return a free loopback port for each name; save them for the next start.

        They are the saved ones if possible, unless other ones are wanted.
        """
        saved = self.saved_ports()
        ports = choose_ports(names, saved if keeps_saved else {}, is_usable)
        _write_atomically(self._ports_file, json.dumps(saved | ports, indent=2))
        return ports

    def saved_ports(self) -> dict[str, int]:
        """Return the ports of the last start, by name."""
        if not self._ports_file.exists():
            return {}
        ports: dict[str, int] = json.loads(self._ports_file.read_text())
        return ports

    def record_service(self, public_url: str) -> None:
        """Record that this process serves the directory at a public URL."""
        fields = {"process": os.getpid(), "public_url": public_url}
        _write_atomically(self._service_file, json.dumps(fields))

    @property
    def public_url(self) -> str | None:
        """Return the public URL of the `tbservice up` that served the directory last, or None."""
        url = self._read_service().get("public_url")
        return None if url is None else str(url)

    @property
    def is_served(self) -> bool:
        """Return whether the process that locked the directory last is one that serves it."""
        holder = (self.path / "lock").read_text().strip()
        return holder == str(self._read_service().get("process"))

    def _read_service(self) -> dict[str, object]:
        try:
            fields: dict[str, object] = json.loads(self._service_file.read_text())
        except FileNotFoundError:
            return {}
        return fields

    @property
    def _service_file(self) -> Path:
        return self.path / "service.json"

    @property
    def _ports_file(self) -> Path:
        return self.path / "ports.json"


def _create(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise StartupError(f"{path} is a file: choose a directory with --data-dir")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise StartupError(
            f"{path} belongs to another user: "
            "run as that user, or choose another directory with --data-dir"
        )
    if not (path / "lock").exists() and any(path.iterdir()):
        raise StartupError(
            f"{path} contains other files: choose an empty directory with --data-dir"
        )
    # A directory that the user created may let others replace files in it.
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~0o066)


def _lock(path: Path) -> int:
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 32).decode().strip()
        os.close(lock)
        raise StartupError(
            f"another tbservice (process {holder}) is running on {path}: "
            "use it, stop it, or choose another --data-dir"
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
            f"the disk of {path} has {free >> 20} MB free and "
            f"{FREE_BYTES_MIN >> 20} MB are needed: "
            "make room, or choose another directory with --data-dir"
        )


def _load_secrets(path: Path) -> Secrets:
    file = path / "secrets.json"
    if file.exists():
        return Secrets(**json.loads(file.read_text()))
    if (path / "postgres").exists():
        raise StartupError(
            f"{file} is missing, and it has the password of the database in {path}: "
            "restore it from a backup"
        )
    generated = Secrets()
    _write_atomically(file, json.dumps(asdict(generated), indent=2))
    return generated


def _write_atomically(file: Path, text: str) -> None:
    """Write a file of mode 0600; after a crash it has its old or its new content."""
    draft = file.with_name(file.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as stream:  # noqa: PTH123 - a descriptor
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)
    draft.replace(file)


def _explain(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full: make room, or choose another directory with --data-dir"
    return (
        f"{path} cannot be written ({error.strerror}): "
        "make it writable, or choose another directory with --data-dir"
    )
