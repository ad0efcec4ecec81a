"""Routes for the records of uploads: where they come from, and how the training ended."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import Path, Query, status
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, StringConstraints

from tbservice import limits
from tbservice.api.http.dependencies import MayAppend, MayReadByToken, UsesDatabase
from tbservice.api.http.request_models import After, FewFields
from tbservice.api.http.routers import make_router
from tbservice.experiment_values import NewUpload, StatusOf, UploadEnd, UploadStatus
from tbservice.experiments import uploads
from tbservice.experiments.uploads import write_times
from tbservice.reading import console

router = make_router(prefix="/api/v1/experiments/{experiment_id}/uploads", tags=["uploads"])

UPLOAD_CONSOLE_LINES_MAX: Final = 1_001
"""Lines (items) of a console with their times: 1,000, and one that says how many are left out."""

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9999, 1, 1, tzinfo=UTC)


def _check_time(time: datetime) -> datetime:
    if not _FIRST <= time < _LAST:
        raise ValueError("must be between the years 1970 and 9998")
    return time


_Time = Annotated[AwareDatetime, AfterValidator(_check_time)]
_Seconds = Annotated[float, Field(ge=0, lt=_LAST.timestamp())]
_ToldStatus = Literal[
    UploadStatus.RUNNING,
    UploadStatus.FINISHED,
    UploadStatus.FAILED,
    UploadStatus.KILLED,
    UploadStatus.UNKNOWN,
]
_Id = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="16 hexadecimal digits, chosen at random")
]
_Key = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_PROPERTY_KEY_CHARS_MAX)]
_Value = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_PROPERTY_VALUE_CHARS_MAX)]
_Package = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_PROPERTY_VALUE_CHARS_MAX)]


class NewUploadFields(FewFields):
    """Facts that an uploader records of itself, and of the training that it follows."""

    origin: dict[_Key, _Value] = Field(
        default={},
        max_length=limits.EXPERIMENT_PROPERTIES_ITEMS_MAX,
        description="Where it comes from: host, user, command, git commit, Python, GPUs",
    )
    packages: list[_Package] = Field(
        default=[],
        max_length=limits.UPLOAD_PACKAGES_ITEMS_MAX,
        description="Packages of the training's environment: `name==version`",
    )
    status_of: StatusOf = Field(
        default=StatusOf.UPLOAD,
        description="What status, start and end are about: `training`, or the `upload` itself",
    )
    started_at: _Time = Field(description="By the uploader's clock")


class UploadChange(FewFields):
    """A change of the status; without one, the uploader only says that it is there."""

    status: _ToldStatus | None = None
    detail: str = Field(
        default="",
        max_length=limits.UPLOAD_DETAIL_CHARS_MAX,
        description="Exit code, type of the exception, or signal",
    )
    ended_at: _Time | None = Field(default=None, description="By the uploader's clock")
    console: str | None = Field(
        default=None,
        max_length=limits.UPLOAD_TEXT_CHARS_MAX,
        description="Last lines that the training has printed; added to the origin",
    )
    console_times: list[_Seconds] | None = Field(
        default=None,
        max_length=UPLOAD_CONSOLE_LINES_MAX,
        description="When each of its lines ended, by the uploader's clock: epoch seconds",
    )
    git_diff: str | None = Field(
        default=None,
        max_length=limits.UPLOAD_TEXT_CHARS_MAX,
        description="Difference of the files to the git commit; added to the origin",
    )

    def to_texts(self) -> dict[str, str]:
        """Return the texts that are added to the origin, by name."""
        times = None if self.console is None else write_times(self.console_times or [])
        texts = {"console": self.console, "console_times": times, "git_diff": self.git_diff}
        return {name: text for name, text in texts.items() if text is not None}

    def to_end(self) -> UploadEnd | None:
        """Return the change of the status; None if there is none."""
        if self.status is None:
            return None
        is_running = self.status is UploadStatus.RUNNING
        return UploadEnd(self.status, self.detail, None if is_running else self.ended_at)


class UploadAnswer(BaseModel, from_attributes=True):
    """The record of an upload."""

    upload_id: str = Field(description="Its system metrics are in the run `system/` and 8 of these")
    status: UploadStatus = Field(
        description="`unknown`: ended without saying how; `silent`: no report for 15 minutes"
    )
    status_of: StatusOf = Field(description="What status, start and end are about")
    detail: str = Field(description="Exit code, type of the exception, or signal")
    started_at: datetime
    ended_at: datetime | None
    created_at: datetime = Field(description="When it was recorded, by the server's clock")
    seen_at: datetime = Field(description="Time of the last report of its uploader; the same clock")
    origin: dict[str, str] = Field(
        description="As recorded, and `console` and `git_diff` (several lines) if there are any"
    )
    packages: list[str]


class ConsoleLineAnswer(BaseModel, from_attributes=True):
    """A line of a console, and where the training was then."""

    number: int = Field(description="Its number, the first recorded line is 1")
    text: str
    time: datetime | None = Field(description="When it was printed, by the uploader's clock")
    run: str | None = Field(description="The run that logged a scalar nearest to that time")
    step: int | None = Field(description="The step of that scalar")


class ConsoleAnswer(BaseModel, from_attributes=True):
    """Lines of the end of a training's console."""

    lines: list[ConsoleLineAnswer]
    total: int = Field(description="Recorded lines, of which `lines` are those that contain `q`")


class UploadPage(BaseModel):
    """A page of uploads, newest first."""

    uploads: list[UploadAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@router.get("")
def list_uploads(
    grant: MayReadByToken,
    database: UsesDatabase,
    after: After = None,
    limit: Annotated[
        int,
        Query(ge=1, le=limits.UPLOADS_PAGE_ITEMS_MAX, description="Maximum uploads per page"),
    ] = limits.UPLOADS_PAGE_ITEMS_MAX,
) -> UploadPage:
    """List the recorded uploads of the experiment, newest first: who, where, and how it ended.

    It takes a token, also if everyone may read the experiment. An anonymous link shows none, and so
    does a frozen one.
    """
    with database.snapshot(grant) as db:
        page, following = uploads.list_uploads(db, grant, after, limit)
    return UploadPage(uploads=list(map(UploadAnswer.model_validate, page)), next=following)


@router.get("/{upload_id}/console")
def read_console(
    grant: MayReadByToken,
    upload_id: _Id,
    database: UsesDatabase,
    q: Annotated[
        str,
        Query(
            max_length=console.SEARCH_CHARS_MAX,
            description="Only lines that contain this text, ignoring case",
        ),
    ] = "",
) -> ConsoleAnswer:
    """Read the end of a training's console, each line with the step that was logged nearest to it.

    At most 1,001 lines, 16,000 characters. Steps are found by time; where those in question have
    more than 50,000 points, by a sample of them. There are no lines if no console was recorded.
    """
    with database.snapshot(grant) as db:
        upload = uploads.get_upload(db, grant, upload_id)
        found = console.read_lines(db, grant, upload, q)
    return ConsoleAnswer.model_validate(found)


@router.put("/{upload_id}", status_code=status.HTTP_204_NO_CONTENT)
def put_upload(
    grant: MayAppend, upload_id: _Id, new: NewUploadFields, database: UsesDatabase
) -> None:
    """Record an upload, which is running from now on; repeating it replaces the record.

    An experiment has 500 records: one more removes the oldest. Control characters are replaced.
    """
    fields = NewUpload(new.origin, new.packages, new.status_of, new.started_at)
    with database.transaction(grant) as db:
        uploads.record_upload(db, grant, upload_id, fields)


@router.patch("/{upload_id}", status_code=status.HTTP_204_NO_CONTENT)
def change_upload(
    grant: MayAppend, upload_id: _Id, change: UploadChange, database: UsesDatabase
) -> None:
    """Say that the uploader of a recorded upload is there, or how the training has ended.

    Texts of several lines (`console`, `git_diff`) are added to its origin; control characters in
    them are replaced.
    The response is 404 if the record was removed: then nothing is recorded any more.
    """
    with database.transaction(grant) as db:
        uploads.report_upload(db, grant, upload_id, change.to_end(), change.to_texts())
