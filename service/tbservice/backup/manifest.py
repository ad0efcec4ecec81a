"""The manifest of a backup: written last, so that a backup without one is not complete."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from tbservice.errors import CommandFailed

FORMAT: Final = 1

BACKUPS: Final = "backups"
"""The folder of a target with one folder per backup."""

OBJECTS: Final = "objects"
"""The folder of a target with the objects of all of its backups, each named by its SHA-256."""


class BackupDamaged(CommandFailed):
    """A backup is not what its manifest says, or has none."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a backup: its name below the target, bytes, and SHA-256 in hexadecimal."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a backup. Times are in ISO 8601, UTC.

    `objects` have different bytes; several blobs may have the same. `lost` are the keys of objects
    that the service had lost, or damaged, when the backup was made.
    """

    name: str
    tbhub_version: str
    migration: str
    server_version: int
    started_at: str
    finished_at: str
    database: StoredFile
    blobs: StoredFile
    objects: int
    object_bytes: int
    copied_objects: int
    copied_bytes: int
    counts: dict[str, int]
    lost: list[str] = field(default_factory=list)
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Parse a manifest. Raises BackupDamaged."""
        try:
            values = json.loads(content)
            if values["format"] != FORMAT:
                raise BackupDamaged(
                    f"the backup has format {values['format']}, which a newer tbhub made"
                )
            database = StoredFile(**values.pop("database"))
            return cls(database=database, blobs=StoredFile(**values.pop("blobs")), **values)
        except (ValueError, TypeError, KeyError) as error:
            raise BackupDamaged("the backup's manifest is damaged") from error


def folder_of(name: str) -> str:
    """Return the folder of a backup."""
    return f"{BACKUPS}/{name}"


def manifest_of(name: str) -> str:
    """Return the name of a backup's manifest."""
    return f"{BACKUPS}/{name}/manifest.json"


def object_name(sha256: bytes) -> str:
    """Return the name of an object in a target: in one of 256 folders."""
    digest = sha256.hex()
    return f"{OBJECTS}/{digest[:2]}/{digest}"
