"""A file of this machine's uploads, by which the same command resumes its experiment.

It is beside the config file.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from tbupload.config import config_path, replace_file
from tbupload.file_lock import locked

RECORDS_MAX: Final = 1_000
"""Uploads in the file, at most; the one started or resumed longest ago is dropped first."""

FILE_BYTES_MAX: Final = 64 << 20
"""Size above which the file is not read: it was not written here."""

LOCK_SECONDS: Final = 5.0
"""Time to wait for another process that has locked the file."""

FORMAT: Final = 1


@dataclass(frozen=True)
class UploadKey:
    """Key that a command shares with the earlier one it resumes.

    `logdir` is absolute and without links. `choice` has the options that make another upload of the
    same directory: name, description, visibility, filters.
    """

    server: str
    logdir: str
    choice: Mapping[str, Any]


@dataclass(frozen=True)
class ResumeRecord:
    """One upload, as it is in the file; it contains no secrets.

    `request_key` is the idempotency key of creating its experiment: it is saved before the request,
    and `experiment_id` after it. `at` is when it was last started (RFC 3339, timezone.utc).
    """

    server: str
    logdir: str
    choice: dict[str, Any]
    request_key: str
    experiment_id: str | None
    url: str | None
    at: str

    def matches(self, key: UploadKey) -> bool:
        """Return whether a command with this key resumes this upload."""
        return (self.server, self.logdir, self.choice) == (key.server, key.logdir, key.choice)


class ResumeStore:
    """The file of uploads; may be used by several processes at once.

    Errors of the file do not fail an upload, which is then not saved. `warn` is called with the
    first one.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._has_warned = False

    def find_or_create(
        self, key: UploadKey, *, is_new: bool = False, replaced: ResumeRecord | None = None
    ) -> ResumeRecord:
        """Return the upload to resume, or a new one without an experiment.

        Args:
            key: The command.
            is_new: Whether to start a new upload in any case.
            replaced: An upload that cannot be resumed. A new one replaces it, unless another
                process has replaced it already.
        """
        fresh = ResumeRecord(
            key.server, key.logdir, dict(key.choice), str(uuid.uuid4()), None, None, _now()
        )
        record = fresh

        def change(uploads: list[ResumeRecord]) -> None:
            nonlocal record
            known = next((upload for upload in uploads if upload.matches(key)), None)
            if known is not None:
                uploads.remove(known)
                is_other = replaced is None or replaced.request_key != known.request_key
                record = known if is_other and not is_new else fresh
            uploads.append(dataclasses.replace(record, at=fresh.at))

        self._change(change)
        return record

    def find(self, key: UploadKey) -> ResumeRecord | None:
        """Return the upload to resume; None if this machine has none."""
        record = None

        def read(uploads: list[ResumeRecord]) -> None:
            nonlocal record
            record = next((upload for upload in uploads if upload.matches(key)), None)

        self._change(read)
        return record

    def save(self, upload: ResumeRecord) -> None:
        """Save the upload as it is now, as the newest one."""

        def change(uploads: list[ResumeRecord]) -> None:
            uploads[:] = [known for known in uploads if known.request_key != upload.request_key]
            uploads.append(dataclasses.replace(upload, at=_now()))

        self._change(change)

    def _change(self, change: Callable[[list[ResumeRecord]], None]) -> None:
        """Call `change` with the list of uploads, oldest first, and write it if it has changed."""
        is_changed = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._path.with_name(f"{self._path.name}.lock"), LOCK_SECONDS):
                uploads = self._read()
                before = list(uploads)
                change(uploads)
                is_changed = True
                if uploads != before:
                    replace_file(self._path, _format_records(uploads[-RECORDS_MAX:]))
        except OSError as error:
            self._warn_once(
                f"{self._path} cannot be written ({error.strerror or error}): if this command "
                "creates an experiment now, it will create another one the next time. "
                "--experiment ID resumes one; --experiment-name NAME finds or creates one"
            )
            if not is_changed:  # what is noted may still be read
                with suppress(OSError):
                    change(self._read())

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
                f"{self._path} is damaged and was replaced: "
                "uploads stopped before have to be resumed with --experiment"
            )
            return []

    def _warn_once(self, sentence: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"tbupload: {sentence}")


def uploads_path(environment: Mapping[str, str]) -> Path:
    """Return the path of `uploads.json`, beside the config file."""
    return config_path(environment).with_name("uploads.json")


def _format_records(uploads: list[ResumeRecord]) -> Iterator[str]:
    """Yield the file's content."""
    records = [dataclasses.asdict(upload) for upload in uploads]
    yield json.dumps({"format": FORMAT, "uploads": records}, indent=1)


def _parse_records(content: bytes) -> list[ResumeRecord]:
    """Return the uploads in the file's content.

    Raises ValueError, TypeError or KeyError if `_format_records` has not formatted it.
    """
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
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
