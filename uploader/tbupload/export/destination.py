"""The directory an export goes to: what makes it ours, and files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from tbupload.errors import OutputError, UsageError
from tbupload.export.directory_names import MANIFEST
from tbupload.file_lock import locked

LOCK: Final = ".tbhub-export.lock"

_LOCK_SECONDS: Final = 1.0


class Destination:
    """A directory that holds one export, and tells so in its manifest: `identity` is what was asked for.

    `plan` is what was decided in the beginning, None before; `is_complete` when all of it is there.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        """Raises UsageError when the directory holds anything else, OutputError when it cannot be used."""
        self.directory = directory
        self._identity = identity
        self._manifest: dict[str, Any] = {
            "tbhub_export": identity,
            "plan": None,
            "is_complete": False,
        }
        with as_output_errors(directory):
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / MANIFEST
            if path.exists():
                self._manifest = _read(path, identity)
            elif any(one.name != LOCK for one in directory.iterdir()):
                raise UsageError(
                    f"{directory} holds other files: name a directory that is new or empty"
                )

    @property
    def plan(self) -> Any:
        """What was decided in the beginning."""
        return self._manifest["plan"]

    @property
    def is_complete(self) -> bool:
        """Whether all that was planned is there."""
        return bool(self._manifest["is_complete"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other exports out while the block lasts. Raises OutputError when one is at work."""
        try:
            with locked(self.directory / LOCK, _LOCK_SECONDS):
                yield
        except TimeoutError as error:
            raise OutputError(
                f"{self.directory}: another export is writing here; wait for it, or end it"
            ) from error

    @property
    def lost_points(self) -> list[dict[str, Any]]:
        """What could not be exported: points whose objects the server has lost."""
        lost: list[dict[str, Any]] = self._manifest.get("lost_points", [])
        return lost

    def add_lost_points(self, lost_points: list[dict[str, Any]]) -> None:
        """Keeps what could not be exported: an export that is resumed is told, too. Keeping a point again is fine."""
        if lost_points:
            points = {
                (point["run"], point["tag"], point["step"]): point
                for point in [*self.lost_points, *lost_points]
            }
            self._save({"lost_points": list(points.values())})

    def begin(self, plan: Any) -> None:
        """Keeps what was decided: an export that is broken off goes on by it."""
        self._save({"plan": plan})

    def mark_complete(self, totals: dict[str, Any]) -> None:
        """All of it is there."""
        self._save({"is_complete": True, "totals": totals})

    def _save(self, fields: dict[str, Any]) -> None:
        self._manifest |= fields
        with atomic_file(self.directory / MANIFEST) as file:
            file.write(
                json.dumps(self._manifest, ensure_ascii=False, indent=1).encode(
                    "utf-8", "surrogateescape"
                )
            )


def _read(path: Path, identity: dict[str, Any]) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_bytes())
        held = manifest["tbhub_export"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not what an export writes: name another directory") from error
    if held != identity:
        differing = ", ".join(
            sorted(name for name in {*held, *identity} if held.get(name) != identity.get(name))
        )
        raise UsageError(
            f"{path.parent} holds an export with other choices ({differing}): name another directory"
        )
    return dict(manifest)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block has ended well, and is on the disk then; its directory is made.

    Raises OutputError when it cannot be written.
    """
    temporary = temporary_path(path)
    with as_output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                yield file
            commit_file(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def temporary_path(path: Path) -> Path:
    """Where a file is written before it is whole: no reader of event files or tables takes it for one."""
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    return path.with_name(f".tbhub-export-{digest}.tmp")


def commit_file(temporary: Path, path: Path) -> None:
    """Makes sure that the file is on the disk, and gives it its name."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def as_output_errors(path: Path) -> Iterator[None]:
    """What the system refuses, as OutputError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "what is whole stays there, and the same command goes on with the rest"
        raise OutputError(f"{error.filename or path}: {reason}; {advice}") from error
