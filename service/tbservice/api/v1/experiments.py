"""Routes for experiments: create, list, show, update, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response, status
from pydantic import BaseModel, ConfigDict, Field

from tbservice import limits
from tbservice.api.http.dependencies import (
    MayAdminister,
    MayRead,
    MayUseWorkspace,
    UsesDatabase,
    UsesSettings,
)
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.v1.point_queries import FewFields
from tbservice.experiments import lifecycle as experiments
from tbservice.settings import Settings
from tbservice.types import Experiment, ExperimentId, Visibility

router = APIRouter(prefix="/api/v1/experiments", tags=["experiments"], route_class=ConditionalRoute)


class NewExperiment(FewFields):
    """The properties of an experiment to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    description: str = Field(default="", max_length=limits.EXPERIMENT_DESCRIPTION_CHARS_MAX)
    visibility: Visibility = Field(
        default=Visibility.PRIVATE,
        description="`private`: readable with a token only; `link`: readable by anyone who has the "
        "URL",
    )
    unique_name: bool = Field(
        default=False, description="Return the experiment of this name, if there is one"
    )


class ExperimentChange(FewFields):
    """The properties to change; an absent or null one is left unchanged."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = Field(default=None, max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    description: str | None = Field(
        default=None, max_length=limits.EXPERIMENT_DESCRIPTION_CHARS_MAX
    )
    visibility: Visibility | None = None


class ExperimentAnswer(BaseModel):
    """An experiment."""

    experiment_id: str
    url: str = Field(description="The experiment's TensorBoard page")
    name: str
    description: str
    visibility: Visibility
    created_at: datetime
    updated_at: datetime


class ExperimentPage(BaseModel):
    """A page of experiments, newest first."""

    experiments: list[ExperimentAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


def experiment_url(settings: Settings, experiment_id: ExperimentId) -> str:
    """Return the URL of the experiment's page."""
    return f"{settings.public_url.rstrip('/')}/experiment/{experiment_id}/"


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses={
        status.HTTP_200_OK: {
            "model": ExperimentAnswer,
            "description": "With `unique_name`: an experiment of this name exists; it is unchanged",
        }
    },
)
def create_experiment(
    grant: MayUseWorkspace,
    new: NewExperiment,
    response: Response,
    database: UsesDatabase,
    settings: UsesSettings,
    # As in draft-ietf-httpapi-idempotency-key-header, but any text is a key.
    idempotency_key: Annotated[
        str | None, Header(max_length=limits.EXPERIMENT_NAME_CHARS_MAX)
    ] = None,
) -> ExperimentAnswer:
    """Create an experiment.

    A request with an `Idempotency-Key` that was used before returns the experiment that the first
    request created. With `unique_name`, so does a request with the name of an existing experiment:
    of concurrent requests, one creates it. If several have the name, the response is 409
    `ambiguous_name`.
    """
    if new.unique_name:
        with database.transaction(grant.workspace_id) as db:
            experiment, is_new = experiments.get_or_create_experiment(
                db, grant, new.name, new.description, new.visibility
            )
        response.status_code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
        return _answer(settings, experiment)

    with database.transaction(grant.workspace_id) as db:
        experiment = experiments.create_experiment(
            db, grant, new.name, new.description, new.visibility, request_key=idempotency_key
        )
    return _answer(settings, experiment)


@router.get("")
def list_experiments(
    grant: MayUseWorkspace,
    database: UsesDatabase,
    settings: UsesSettings,
    q: Annotated[
        str,
        Query(description="Text that the name or the description contains; case-insensitive"),
    ] = "",
    after: Annotated[str | None, Query(description="`next` of the previous page")] = None,
    limit: Annotated[
        int, Query(ge=1, le=limits.PAGE_ITEMS_MAX, description="Maximum experiments per page")
    ] = 100,
) -> ExperimentPage:
    """List the workspace's experiments, newest first."""
    with database.snapshot(grant.workspace_id) as db:
        page, following = experiments.list_experiments(db, grant, q, after, limit)
    return ExperimentPage(
        experiments=[_answer(settings, experiment) for experiment in page], next=following
    )


@router.get("/{experiment_id}")
def show_experiment(
    grant: MayRead, database: UsesDatabase, settings: UsesSettings
) -> ExperimentAnswer:
    """Return one experiment."""
    with database.snapshot(grant.workspace_id) as db:
        return _answer(settings, experiments.get_experiment(db, grant))


@router.patch("/{experiment_id}")
def change_experiment(
    grant: MayAdminister, change: ExperimentChange, database: UsesDatabase, settings: UsesSettings
) -> ExperimentAnswer:
    """Change the name, description or visibility of an experiment."""
    with database.transaction(grant.workspace_id) as db:
        return _answer(
            settings,
            experiments.update_experiment(
                db, grant, change.name, change.description, change.visibility
            ),
        )


@router.delete("/{experiment_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_experiment(grant: MayAdminister, database: UsesDatabase) -> None:
    """Delete an experiment with all its runs, points, upload cursors and tokens."""
    with database.transaction(grant.workspace_id) as db:
        experiments.delete_experiment(db, grant)


@router.delete("/{experiment_id}/runs", status_code=status.HTTP_204_NO_CONTENT)
def delete_run(grant: MayAdminister, database: UsesDatabase, run: str) -> None:
    """Delete a run, its series and its upload cursors.

    A later upload of the same files sends them again.
    """
    with database.transaction(grant.workspace_id) as db:
        experiments.delete_run(db, grant, run)


@router.delete("/{experiment_id}/series", status_code=status.HTTP_204_NO_CONTENT)
def delete_series(grant: MayAdminister, database: UsesDatabase, run: str, tag: str) -> None:
    """Delete one time series, and the upload cursors of its run.

    A later upload of the run's files therefore restores the series.
    """
    with database.transaction(grant.workspace_id) as db:
        experiments.delete_series(db, grant, run, tag)


def _answer(settings: Settings, experiment: Experiment) -> ExperimentAnswer:
    return ExperimentAnswer(
        experiment_id=experiment.experiment_id,
        url=experiment_url(settings, experiment.experiment_id),
        name=experiment.name,
        description=experiment.description,
        visibility=experiment.visibility,
        created_at=experiment.created_at,
        updated_at=experiment.updated_at,
    )
