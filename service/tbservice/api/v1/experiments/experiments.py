"""Routes for experiments: create, list, show, update, delete, restore."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Response, status
from sqlalchemy import Connection

from tbservice import limits
from tbservice.api.http.dependencies import (
    MayAdminister,
    MayCreate,
    MayList,
    MayRead,
    MayRestore,
    UsesDatabase,
    UsesSettings,
)
from tbservice.api.http.request_models import After, page_limit
from tbservice.api.http.routers import make_router
from tbservice.api.v1.experiments.experiment_schemas import (
    DeletedPage,
    ExperimentAnswer,
    ExperimentChange,
    ExperimentPage,
    ExperimentsQuery,
    ListedAnswer,
    NewExperiment,
    make_answer,
    make_deleted,
    make_listed,
    to_metadata,
)
from tbservice.experiments import deletion, details, lifecycle, listing, uploads
from tbservice.settings import Settings
from tbservice.types.experiments import Experiment
from tbservice.types.grants import Grant, ReadGrant

# No ETags: the status of an experiment changes without its data, and with time.
router = make_router(prefix="/api/v1/experiments", tags=["experiments"])


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
    grant: MayCreate,
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
    with database.transaction(grant) as db:
        if new.unique_name:
            experiment, is_new = lifecycle.get_or_create_experiment(db, grant, to_metadata(new))
            response.status_code = status.HTTP_201_CREATED if is_new else status.HTTP_200_OK
        else:
            experiment = lifecycle.create_experiment(
                db, grant, to_metadata(new), request_key=idempotency_key
            )
        return _answer(db, grant, settings, experiment)


@router.get("")
def list_experiments(
    grant: MayList,
    database: UsesDatabase,
    settings: UsesSettings,
    query: Annotated[ExperimentsQuery, Query()],
) -> ExperimentPage:
    """List the workspace's experiments, newest first."""
    with database.snapshot(grant) as db:
        page = listing.list_experiments(
            db, grant, query.to_search(grant.user_id), query.after, query.limit
        )
        statuses = uploads.find_statuses(db, grant, page.experiments)
        known = details.read_details(db, grant, page.experiments) if query.details else {}
    return ExperimentPage(
        experiments=[
            make_listed(settings, experiment, statuses.get(id_), known.get(id_))
            for experiment in page.experiments
            for id_ in (experiment.experiment_id,)
        ],
        next=page.next,
    )


@router.get("/deleted")
def list_deleted_experiments(
    grant: MayList,
    database: UsesDatabase,
    settings: UsesSettings,
    after: After = None,
    limit: Annotated[int, page_limit("experiments")] = 100,
) -> DeletedPage:
    """List the deleted experiments that can be restored, the last deleted first."""
    with database.snapshot(grant) as db:
        page = deletion.list_deleted(db, grant, after, limit)
        statuses = uploads.find_statuses(db, grant, page.experiments)
    return DeletedPage(
        experiments=[
            make_deleted(settings, experiment, statuses.get(experiment.experiment_id))
            for experiment in page.experiments
        ],
        next=page.next,
    )


@router.get("/{experiment_id}")
def show_experiment(
    grant: MayRead,
    database: UsesDatabase,
    settings: UsesSettings,
    with_details: Annotated[
        bool,
        Query(alias="details", description="Count runs and series, and name who created it"),
    ] = False,
) -> ExperimentAnswer:
    """Return one experiment."""
    with database.snapshot(grant) as db:
        experiment = lifecycle.get_experiment(db, grant)
        return _answer(db, grant, settings, experiment, with_details=with_details)


@router.patch("/{experiment_id}")
def change_experiment(
    grant: MayAdminister, change: ExperimentChange, database: UsesDatabase, settings: UsesSettings
) -> ExperimentAnswer:
    """Change what is written about an experiment, who may read it, and whether it is archived."""
    with database.transaction(grant) as db:
        experiment = lifecycle.update_experiment(db, grant, to_metadata(change))
        return _answer(db, grant, settings, experiment)


@router.delete("/{experiment_id}", status_code=status.HTTP_204_NO_CONTENT)
def delete_experiment(
    grant: MayAdminister,
    database: UsesDatabase,
    final: Annotated[
        bool, Query(description="Erase it as soon as possible: it cannot be restored")
    ] = False,
    keep_frozen_links: Annotated[
        bool,
        Query(description="Its frozen links go on showing their copies; else they are deleted"),
    ] = False,
) -> None:
    """Delete an experiment with all its runs, points, upload cursors and tokens.

    It is hidden at once, can be restored for seven days, and is then erased. Frozen copies that are
    kept are each an experiment of its own from then on, which ends with its link.
    """
    with database.transaction(grant) as db:
        deletion.delete_experiment(db, grant, is_final=final, keeps_copies=keep_frozen_links)


@router.post("/{experiment_id}/restore")
def restore_experiment(
    experiment_id: str, grant: MayRestore, database: UsesDatabase, settings: UsesSettings
) -> ListedAnswer:
    """Undo the deletion of an experiment, with its data, tokens and links."""
    with database.transaction(grant) as db:
        restored = deletion.restore_experiment(db, grant, experiment_id)
        found = uploads.find_status(db, grant, restored)
    return make_listed(settings, restored, found)


def _answer(
    db: Connection,
    grant: Grant,
    settings: Settings,
    experiment: Experiment,
    *,
    with_details: bool = False,
) -> ExperimentAnswer:
    reader = grant if isinstance(grant, ReadGrant) else None
    known = details.read_details(db, grant, [experiment]) if with_details else {}
    return make_answer(
        settings,
        experiment,
        lifecycle.get_notes(db, experiment, reader),
        uploads.find_status(db, grant, experiment),
        known.get(experiment.experiment_id),
        is_archived=lifecycle.is_archived(db, grant, experiment),
        is_published=lifecycle.is_published(db, experiment),
    )
