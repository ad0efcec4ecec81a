"""Routes that delete runs and series, list deleted runs, and allow them to be uploaded again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query, status
from pydantic import BaseModel, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayAdminister, MayAppend, MayRead, UsesDatabase
from tbservice.api.http.routers import make_router
from tbservice.experiments import run_deletion

router = make_router(prefix="/api/v1/experiments/{experiment_id}", tags=["experiments"])

_Runs = Annotated[
    list[str],
    Query(
        min_length=1,
        max_length=limits.DELETED_RUNS_ITEMS_MAX,
        description="Name of a run; repeat it for more",
    ),
]


class DeletedRun(BaseModel):
    """A run that was deleted from an experiment."""

    name_sha256: str = Field(description="SHA-256 of its name (UTF-8), in hexadecimal")
    deleted_at: datetime


class DeletedRunPage(BaseModel):
    """A page of an experiment's deleted runs, in the order of their hashes."""

    runs: list[DeletedRun]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@router.delete("/runs", status_code=status.HTTP_204_NO_CONTENT)
def delete_runs(grant: MayAdminister, run: _Runs, database: UsesDatabase) -> None:
    """Delete runs with their series, points, hyperparameters, upload cursors and trials.

    At once, and it cannot be undone. One after the other, each completely; none if one of the names
    is no run. Repeating the request changes nothing. Later writes to a deleted run are refused with
    409 `run_deleted`, until `DELETE …/runs/deleted` allows them.
    """
    names = list(dict.fromkeys(run))
    with database.transaction(grant) as db:
        run_deletion.check_runs(db, grant, names)
    run_deletion.delete_runs(database, grant, names)


@router.get("/runs/deleted")
def list_deleted_runs(
    grant: MayRead,
    database: UsesDatabase,
    after: Annotated[str, Query(description="`next` of the previous page")] = "",
    limit: Annotated[
        int, Query(ge=1, le=limits.STREAMS_PAGE_ITEMS_MAX, description="Maximum runs per page")
    ] = limits.STREAMS_PAGE_ITEMS_MAX,
) -> DeletedRunPage:
    """List the runs that were deleted and may not be uploaded again, by hashes of their names.

    The names are not kept. A share link that shows some of the runs lists none.
    """
    with database.snapshot(grant) as db:
        page, following = run_deletion.list_deleted(db, grant, after, limit)
    return DeletedRunPage(
        runs=[DeletedRun(name_sha256=digest.hex(), deleted_at=at) for digest, at in page],
        next=following,
    )


@router.delete("/runs/deleted", status_code=status.HTTP_204_NO_CONTENT)
def allow_deleted_runs(grant: MayAppend, run: _Runs, database: UsesDatabase) -> None:
    """Let deleted runs be uploaded again. Deleted data is not restored.

    Other names change nothing.
    """
    with database.transaction(grant) as db:
        run_deletion.allow_runs(db, grant, run)


@router.delete("/series", status_code=status.HTTP_204_NO_CONTENT)
def delete_series(grant: MayAdminister, run: str, tag: str, database: UsesDatabase) -> None:
    """Delete one time series, and the upload cursors of its run.

    A later upload of the run's files therefore restores the series.
    """
    with database.transaction(grant) as db:
        run_deletion.delete_series(db, grant, run, tag)
    run_deletion.erase_points(database, grant)
