"""What this machine's uploads made, in a small file beside the config file: the same command goes on with its own."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tbupload.config import config_path
from tbupload.file_lock import locked

RECORDS_MAX: Final = 1_000
"""Uploads that are remembered; the one that was begun or gone on with the longest ago is forgotten first."""

FILE_BYTES_MAX: Final = 64 << 20
"""A longer file is not one of ours, and is not read."""

LOCK_SECONDS: Final = 5.0
"""How long another `tbupload` is waited for that has the file."""

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class UploadKey:
    """What makes a command the same as an earlier one: server, logdir (absolute, without links) and its choice.

    `choice` are the options that make another upload of the same logdir: name, description, visibility, filters.
    """

    server: str
    logdir: str
    choice: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResumeRecord:
    """One upload. `request_key` made its experiment, or will: it is remembered before, and the experiment after.

    `at` is when it was last begun, ISO 8601 in UTC. There are no secrets in it.
    """

    server: str
    logdir: str
    choice: dict[str, Any]
    request_key: str
    experiment_id: str | None
    url: str | None
    at: str

    def matches(self, key: UploadKey) -> bool:
        """Whether the key's command is the one that began this upload."""
        return (self.server, self.logdir, self.choice) == (key.server, key.logdir, key.choice)


class ResumeStore:
    """The file of remembered uploads; may be used by several processes at once.

    Whatever is wrong with the file is told to `warn`, once and in a line, and no upload fails for it: it is then not
    remembered.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._has_warned = False

    def find_or_create(
        self, key: UploadKey, *, is_new: bool = False, replaced: ResumeRecord | None = None
    ) -> ResumeRecord:
        """The upload to go on with; a fresh one, with no experiment yet, when there is none or `is_new`.

        `instead_of` is one that cannot be gone on with: it is replaced, unless another process has done so already.
        """
        fresh = ResumeRecord(
            key.server, key.logdir, dict(key.choice), str(uuid.uuid4()), None, None, _now()
        )
        begun = fresh

        def change(uploads: list[ResumeRecord]) -> None:
            nonlocal begun
            known = next((upload for upload in uploads if upload.matches(key)), None)
            if known is not None:
                uploads.remove(known)
                is_other = replaced is None or replaced.request_key != known.request_key
                begun = known if is_other and not is_new else fresh
            uploads.append(dataclasses.replace(begun, at=fresh.at))

        self._change(change)
        return begun

    def save(self, upload: ResumeRecord) -> None:
        """Remembers the upload as it is now, as the newest one."""

        def change(uploads: list[ResumeRecord]) -> None:
            uploads[:] = [known for known in uploads if known.request_key != upload.request_key]
            uploads.append(dataclasses.replace(upload, at=_now()))

        self._change(change)

    def remove(self, server: str, experiment_id: str) -> None:
        """The experiment is complete: the same command makes another one the next time."""

        def change(uploads: list[ResumeRecord]) -> None:
            uploads[:] = [
                each
                for each in uploads
                if (each.server, each.experiment_id) != (server, experiment_id)
            ]

        self._change(change)

    def _change(self, change: Callable[[list[ResumeRecord]], None]) -> None:
        """Lets `change` work on the remembered uploads, oldest first, and writes them if it did."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._path.with_name(f"{self._path.name}.lock"), LOCK_SECONDS):
                uploads = self._read()
                before = list(uploads)
                change(uploads)
                if uploads != before:
                    self._write(uploads[-RECORDS_MAX:])
        except OSError as error:
            self._warn_once(
                f"{self._path}: {error.strerror or error}; a stopped upload has to be resumed with --experiment"
            )

    def _read(self) -> list[ResumeRecord]:
        try:
            with self._path.open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return []
        try:
            return _parse_records(content)
        except (ValueError, TypeError, KeyError, RecursionError):
            self._warn_once(
                f"{self._path} is damaged and begun anew: uploads stopped before have to be resumed with --experiment"
            )
            return []

    def _write(self, uploads: list[ResumeRecord]) -> None:
        """Writes the file whole or not at all, readable by its owner only."""
        content = {"format": FORMAT, "uploads": [dataclasses.asdict(upload) for upload in uploads]}
        descriptor, name = tempfile.mkstemp(
            dir=self._path.parent, prefix=f".{self._path.name}."
        )  # with mode 0600
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
            Path(name).replace(self._path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def _warn_once(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"tbupload: {sentence}")


def uploads_path(environment: Mapping[str, str]) -> Path:
    """`uploads.json`, beside the config file."""
    return config_path(environment).with_name("uploads.json")


def _parse_records(content: bytes) -> list[ResumeRecord]:
    """The uploads in the file's content; ValueError, TypeError or KeyError when it is not what `_write` wrote."""
    if len(content) > FILE_BYTES_MAX:
        raise ValueError("too long")
    fields = json.loads(content)
    if fields["format"] != FORMAT:
        raise ValueError("another format")
    return [_check_types(ResumeRecord(**each)) for each in fields["uploads"]]


def _check_types(upload: ResumeRecord) -> ResumeRecord:
    texts = (
        upload.server,
        upload.logdir,
        upload.request_key,
        upload.at,
        upload.experiment_id or "",
        upload.url or "",
    )
    if not isinstance(upload.choice, dict) or not all(isinstance(text, str) for text in texts):
        raise TypeError("a field of another type")
    return upload


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
