"""Bodies of the routes for experiments: what is sent, and what is answered."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, StrictBool, StringConstraints

from tbservice import limits
from tbservice.api.http.request_models import FewFields
from tbservice.errors import Invalid
from tbservice.experiment_values import ExperimentNotes, ExperimentOrder, UploadStatus
from tbservice.experiments.details import ExperimentDetails
from tbservice.experiments.listing import Search
from tbservice.experiments.metadata import Metadata
from tbservice.settings import Settings
from tbservice.types.experiments import Experiment, Visibility
from tbservice.types.identifiers import ExperimentId, Json, UserId

_Tag = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_TAG_CHARS_MAX)]
_Tags = Annotated[list[_Tag], Field(max_length=limits.EXPERIMENT_TAGS_ITEMS_MAX)]
_Key = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_PROPERTY_KEY_CHARS_MAX)]
_Value = Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_PROPERTY_VALUE_CHARS_MAX)]
_EXPIRES = (
    "When it is deleted by itself, and restorable for seven days; later if data arrived within "
    "the last day, or while it has a frozen link"
)
_ITEMS_MAX = limits.EXPERIMENT_PROPERTIES_ITEMS_MAX


class NewExperiment(FewFields):
    """The properties of an experiment to create."""

    name: str = Field(default="", max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    description: str = Field(
        default="",
        max_length=limits.EXPERIMENT_DESCRIPTION_CHARS_MAX,
        description="What it is, as Markdown",
    )
    visibility: Visibility = Field(
        default=Visibility.PRIVATE,
        description="`private`: readable with a token only; `link`: readable by anyone who has the "
        "URL",
    )
    tags: _Tags = Field(default=[], description="Tags for people; without commas")
    notes: str = Field(
        default="",
        max_length=limits.EXPERIMENT_NOTES_CHARS_MAX,
        description="What was seen and concluded, as Markdown",
    )
    properties: dict[_Key, _Value] = Field(
        default={}, max_length=_ITEMS_MAX, description="Key-value pairs"
    )
    origin: dict[_Key, _Value] = Field(
        default={},
        max_length=_ITEMS_MAX,
        description="Where it comes from: `tbupload` sends host, user, command and git commit",
    )
    expires_at: AwareDatetime | Literal["never"] | None = Field(
        default=None,
        description=f"{_EXPIRES}. Absent: after `expires_days` of the workspace; `never` keeps it",
    )
    unique_name: StrictBool = Field(
        default=False, description="Return the experiment of this name, if there is one"
    )


class ExperimentChange(FewFields):
    """The properties to change; an absent or null one is left unchanged."""

    name: str | None = Field(default=None, max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    description: str | None = Field(
        default=None, max_length=limits.EXPERIMENT_DESCRIPTION_CHARS_MAX
    )
    visibility: Visibility | None = None
    tags: _Tags | None = Field(default=None, description="All tags: others are removed")
    notes: str | None = Field(default=None, max_length=limits.EXPERIMENT_NOTES_CHARS_MAX)
    properties: dict[_Key, _Value | None] | None = Field(
        default=None,
        max_length=_ITEMS_MAX,
        description="Pairs to set; null removes a key, and others are kept",
    )
    origin: dict[_Key, _Value] | None = Field(
        default=None, max_length=_ITEMS_MAX, description="All of it: `{}` removes it"
    )
    expires_at: AwareDatetime | Literal["never"] | None = Field(
        default=None, description=f"{_EXPIRES}; `never` keeps it"
    )
    archived: StrictBool | None = Field(
        default=None, description="Whether lists leave it out; nothing else changes"
    )
    published: StrictBool | None = Field(
        default=None,
        description="Whether search engines may list its pages: only with the visibility `link`, "
        "and no longer once it is `private`",
    )


class ExperimentsQuery(FewFields):
    """Filters and order of a list of experiments."""

    q: str = Field(
        default="",
        description="Words: each must begin a word of name, tags, description, notes, properties, "
        "or of who created it; case-insensitive",
    )
    tag: list[str] = Field(default=[], description="Only experiments with all of these tags")
    created_by: str | None = Field(
        default=None, description="Only those that the user with this id created"
    )
    visibility: Visibility | None = None
    status: list[UploadStatus] = Field(
        default=[], description="Only experiments with one of these statuses"
    )
    starred: bool = Field(
        default=False, description="Only those that the person of the token has starred"
    )
    archived: bool = Field(
        default=False, description="The archived experiments, which other lists leave out"
    )
    sort: ExperimentOrder = Field(
        default=ExperimentOrder.CREATED,
        description="Newest and largest first, names from A to Z; `updated` is the time of the "
        "last data, and those without data are the last, also with `reverse`; `status`: running, "
        "silent, failed, killed, unknown, finished, none",
    )
    reverse: bool = Field(default=False, description="The other way round")
    details: bool = Field(
        default=False, description="Count runs and series, and name who created each"
    )
    after: str | None = Field(default=None, description="`next` of the previous page")
    limit: int = Field(
        default=100, ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum experiments per page"
    )

    def to_search(self, user_id: UserId | None) -> Search:
        """Return what to list for a person, None for a machine. Raises Invalid."""
        if self.starred and user_id is None:
            raise Invalid("`starred` takes a token of a person: a machine stars nothing")
        return Search(
            self.q,
            tuple(self.tag),
            None if self.created_by is None else UserId(self.created_by),
            self.visibility,
            self.sort,
            is_descending=(self.sort is not ExperimentOrder.NAME) != self.reverse,
            statuses=self.status,
            starred_by=user_id if self.starred else None,
            is_archived=self.archived,
        )


class DetailsAnswer(BaseModel):
    """Fields that are read only on request."""

    author: str | None = Field(
        description="Name of the person who created it, or their e-mail address if the caller is a "
        "person; null for a machine, and for readers by a link"
    )
    runs: int
    series: int
    is_exact: bool = Field(description="False: it has more runs or series than that")


class ListedAnswer(BaseModel):
    """An experiment in a list."""

    experiment_id: str
    url: str = Field(description="The experiment's TensorBoard page")
    name: str
    description: str
    visibility: Visibility
    tags: list[str]
    created_by: str | None = Field(description="Id of the user who created it; null for a machine")
    created_at: datetime
    updated_at: datetime = Field(description="The last change of data or of these properties")
    data_at: datetime | None = Field(
        description="When data arrived last, up to a minute early; null before the first"
    )
    expires_at: datetime | None = Field(
        description="When it is deleted by itself; null for never, and for readers by a link"
    )
    status: UploadStatus | None = Field(
        description="`running` if an uploader follows it now; else how the upload with the last "
        "report ended, or `silent` if there was no report for 15 minutes. Null without "
        "recorded uploads, and for readers who are not shown them"
    )
    points: int | None = Field(
        description="Points that arrived, also those superseded since; null with a link that hides "
        "something"
    )
    bytes: int | None = Field(
        description="Size of these points in bytes, estimated; null as `points`"
    )
    details: DetailsAnswer | None = Field(default=None, description="Null unless asked for")


class ExperimentAnswer(ListedAnswer):
    """An experiment with what is written about it."""

    notes: str
    properties: dict[str, str]
    origin: dict[str, str] = Field(description="Where it comes from")
    archived: bool = Field(description="Lists leave it out; false for readers by a link")
    published: bool = Field(description="Search engines may list its pages")


class ExperimentPage(BaseModel):
    """A page of experiments, newest first unless another order was asked for."""

    experiments: list[ListedAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


class DeletedAnswer(ListedAnswer):
    """A deleted experiment, which can be restored until it is erased."""

    deleted_at: datetime
    erase_at: datetime


class DeletedPage(BaseModel):
    """A page of deleted experiments, the last deleted first."""

    experiments: list[DeletedAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


def experiment_url(settings: Settings, experiment_id: ExperimentId) -> str:
    """Return the URL of the experiment's page."""
    return f"{settings.public_url.rstrip('/')}/experiment/{experiment_id}/"


def to_metadata(sent: NewExperiment | ExperimentChange) -> Metadata:
    """Return what a request sets."""
    names = type(sent).model_fields.keys() & Metadata.__dataclass_fields__.keys()
    return Metadata(**{name: getattr(sent, name) for name in names})


def make_listed(
    settings: Settings,
    experiment: Experiment,
    status: UploadStatus | None,
    details: ExperimentDetails | None = None,
) -> ListedAnswer:
    """Return an experiment as lists have it."""
    return ListedAnswer(
        **_listed_fields(settings, experiment, status), details=_make_details(details)
    )


def make_deleted(
    settings: Settings, experiment: Experiment, status: UploadStatus | None
) -> DeletedAnswer:
    """Return a deleted experiment."""
    assert experiment.deleted_at is not None  # noqa: S101 - of all in the list
    assert experiment.erase_at is not None  # noqa: S101 - the same
    return DeletedAnswer(
        **_listed_fields(settings, experiment, status),
        deleted_at=experiment.deleted_at,
        erase_at=experiment.erase_at,
    )


def make_answer(
    settings: Settings,
    experiment: Experiment,
    notes: ExperimentNotes,
    status: UploadStatus | None,
    details: ExperimentDetails | None = None,
    *,
    is_archived: bool = False,
    is_published: bool = False,
) -> ExperimentAnswer:
    """Return an experiment with all of its properties."""
    return ExperimentAnswer(
        **_listed_fields(settings, experiment, status),
        details=_make_details(details),
        notes=notes.notes,
        properties=notes.properties,
        origin=notes.origin,
        archived=is_archived,
        published=is_published,
    )


def _make_details(details: ExperimentDetails | None) -> DetailsAnswer | None:
    return None if details is None else DetailsAnswer(**dataclasses.asdict(details))


def _listed_fields(settings: Settings, experiment: Experiment, status: UploadStatus | None) -> Json:
    return {
        "experiment_id": experiment.experiment_id,
        "url": experiment_url(settings, experiment.experiment_id),
        "name": experiment.name,
        "description": experiment.description,
        "visibility": experiment.visibility,
        "tags": list(experiment.tags),
        "created_by": experiment.created_by,
        "created_at": experiment.created_at,
        "updated_at": experiment.updated_at,
        "data_at": experiment.data_at if experiment.version else None,
        "expires_at": experiment.expires_at,
        "status": status,
        "points": experiment.points,
        "bytes": experiment.bytes,
    }
