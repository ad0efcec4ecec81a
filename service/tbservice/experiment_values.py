"""Plain values about experiments: what is written about one, and which ones to list."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tbservice.types.identifiers import UserId


@dataclass(frozen=True, slots=True)
class ExperimentNotes:
    """Metadata of an experiment: Markdown, key-value pairs, and where it came from."""

    notes: str
    properties: dict[str, str]
    origin: dict[str, str]


class ExperimentOrder(enum.StrEnum):
    """Key that a list of experiments is sorted by."""

    CREATED = "created"
    UPDATED = "updated"
    NAME = "name"
    SIZE = "size"
    STATUS = "status"


@dataclass(frozen=True, slots=True)
class ExperimentQuery:
    """Filters and order of a list of a workspace's experiments.

    An experiment must have each of `words`, for each of `prefixes` a word that begins with it, and
    one of `statuses`, unless there are none. With `has_no_status`, nothing was recorded of it.
    `starred_by` is a person who has starred it. Archived experiments are in lists of their own.
    """

    words: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    order: ExperimentOrder = ExperimentOrder.CREATED
    is_descending: bool = True
    statuses: tuple[UploadStatus, ...] = ()
    has_no_status: bool = False
    starred_by: UserId | None = None
    is_archived: bool = False


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """A list of experiments: the query of its address, without the workspace."""

    name: str
    query: str


class UploadStatus(enum.StrEnum):
    """How it is with a training, or an upload: see `StatusOf`.

    `UNKNOWN`: it ended without saying how. `SILENT`: nothing says that it ended, and its uploader
    has said nothing for `limits.UPLOAD_SILENT_SECONDS_MAX`; this is never stored.
    """

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"
    UNKNOWN = "unknown"
    SILENT = "silent"


class StatusOf(enum.StrEnum):
    """Subject of the status, start and end of an upload.

    The upload itself, if its uploader knows no process that writes the files.
    """

    TRAINING = "training"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True)
class NewUpload:
    """Facts that an uploader records of itself, and of the training that it follows."""

    origin: Mapping[str, str]
    packages: Sequence[str]
    status_of: StatusOf
    started_at: datetime


@dataclass(frozen=True, slots=True)
class UploadEnd:
    """A change of a status: `ended_at` is None while it is running."""

    status: UploadStatus
    detail: str
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """A recorded upload. `created_at` and `seen_at` are by the server's clock.

    `console_times` are the times of the lines of the console in `origin`: epoch seconds, as text.
    """

    upload_id: str
    origin: dict[str, str]
    packages: list[str]
    status: UploadStatus
    status_of: StatusOf
    detail: str
    started_at: datetime
    ended_at: datetime | None
    created_at: datetime
    seen_at: datetime
    console_times: str | None
