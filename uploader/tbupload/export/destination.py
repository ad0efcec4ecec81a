"""The directory of an export: its manifest, its lock, and files that are written atomically."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from tbupload.errors import OutputError, UsageError
from tbupload.export.directory_names import MANIFEST
from tbupload.export.remote_series import LostPoint
from tbupload.file_lock import locked

LOCK: Final = ".tbhub-export.lock"

_LOCK_SECONDS: Final = 1.0


class Destination:
    """The directory of one export, described by its manifest.

    `identity` has the options of the export: only an export with the same options may resume it.
    """

    def __init__(self, directory: Path, identity: dict[str, Any]) -> None:
        """Open or create the directory.

        Raises:
            UsageError: it contains other files, or an export with other options.
            OutputError: it cannot be created or read.
        """
        self.directory = directory
        self._identity = identity
        self._manifest: dict[str, Any] = {
            "tbhub_export": identity,
            "plan": None,
            "is_complete": False,
        }
        with _cannot_begin(directory):
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / MANIFEST
            if path.exists():
                self._manifest = _read(path, identity)
            elif any(entry.name != LOCK for entry in directory.iterdir()):
                raise UsageError(f"{directory} contains other files: use a new or empty directory")

    @property
    def plan(self) -> Any:
        """Return the plan of the export, None before `begin`."""
        return self._manifest["plan"]

    @property
    def is_complete(self) -> bool:
        """Return whether the export is complete."""
        return bool(self._manifest["is_complete"])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other exports during the block. Raise OutputError if one is running."""
        with ExitStack() as stack:
            try:
                with _cannot_begin(self.directory):
                    stack.enter_context(locked(self.directory / LOCK, _LOCK_SECONDS))
            except TimeoutError as error:
                raise OutputError(
                    f"{self.directory}: another export is writing here: wait for it, or stop it"
                ) from error
            yield

    @property
    def lost_points(self) -> list[dict[str, Any]]:
        """Return the points that were not exported, because the server has lost their objects."""
        lost: list[dict[str, Any]] = self._manifest.get("lost_points", [])
        return lost

    @property
    def missing_tables(self) -> dict[str, str]:
        """Return why tables are missing in a complete export, by name of the table."""
        missing: dict[str, str] = self._manifest.get("totals", {}).get("missing_tables", {})
        return missing

    def add_lost_points(self, lost: Sequence[LostPoint]) -> None:
        """Add lost points to the manifest, so that a resumed export reports them; idempotent."""
        if lost:
            names = ("run", "tag", "step", "reason")
            added = [{name: getattr(point, name) for name in names} for point in lost]
            points = {
                (point["run"], point["tag"], point["step"]): point
                for point in [*self.lost_points, *added]
            }
            self._save({"lost_points": list(points.values())})

    def begin(self, plan: Any) -> None:
        """Save the plan, so that an interrupted export can be resumed with it."""
        self._save({"plan": plan})

    def mark_complete(self, totals: dict[str, Any]) -> None:
        """Save that the export is complete, with its totals."""
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
        stored = manifest["tbhub_export"]
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not a manifest of an export: use another directory") from error
    if stored != identity:
        differing = ", ".join(
            sorted(name for name in {*stored, *identity} if stored.get(name) != identity.get(name))
        )
        raise UsageError(
            f"{path.parent} contains an export with other options ({differing}): "
            "use another directory"
        )
    return dict(manifest)


@contextmanager
def atomic_file(path: Path, temporary: Path | None = None) -> Iterator[IO[bytes]]:
    """Write a file atomically: it gets its name, after fsync, when the block ends without an error.

    Until then it is `temporary`, by default a name that the next export to `path` uses again.
    Missing directories are created. Raise OutputError if the file cannot be written.
    """
    temporary = temporary or temporary_path(path)
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
    """Return the path of an incomplete file; readers of event files or tables skip this name."""
    digest = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    return path.with_name(f".tbhub-export-{digest}.tmp")


def commit_file(temporary: Path, path: Path) -> None:
    """Flush the file to disk (fsync), and rename it."""
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def _cannot_begin(directory: Path) -> Iterator[None]:
    """Raise each OSError of the block as OutputError, before anything was exported."""
    try:
        yield
    except TimeoutError:
        raise
    except FileExistsError as error:
        raise OutputError(f"{directory} is a file: --output takes a directory") from error
    except OSError as error:
        raise OutputError(
            f"{directory} cannot be written: {error.strerror or error}: give another --output"
        ) from error


@contextmanager
def as_output_errors(path: Path) -> Iterator[None]:
    """Raise each OSError of the block as OutputError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = "complete files are kept: run the same command again for the rest"
        raise OutputError(f"{error.filename or path}: {reason}; {advice}") from error
