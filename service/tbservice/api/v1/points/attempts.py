"""Route that lists the attempts of runs that were restarted."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import MayRead, UsesDatabase
from tbservice.api.http.etag import ConditionalRoute
from tbservice.api.http.routers import make_router
from tbservice.reading import attempts

router = make_router(
    prefix="/api/v1/experiments/{experiment_id}", tags=["reading"], route_class=ConditionalRoute
)


class AttemptAnswer(BaseModel):
    """An attempt of a run."""

    attempt: int = Field(description="Number of the attempt, from 1")
    started_at: float = Field(
        description="Wall time of the first record of the file that it began with, in seconds "
        "since the epoch"
    )
    superseded_points: int = Field(
        description="Points of this attempt that later ones superseded; 0 for the newest"
    )


class RunAttemptsAnswer(BaseModel):
    """The attempts of a run, the oldest first."""

    run: str = Field(description="Name of the run")
    attempts: list[AttemptAnswer]


class AttemptsAnswer(BaseModel):
    """The runs that have several attempts."""

    runs: list[RunAttemptsAnswer]


@router.get("/attempts")
def list_attempts(grant: MayRead, database: UsesDatabase) -> AttemptsAnswer:
    """List the attempts of each run that was restarted and repeated steps.

    Shown is the newest; an earlier one is read with `attempt` at the routes of points. Runs with
    one attempt are left out.
    """
    with database.snapshot(grant) as db:
        runs = attempts.list_attempts(db, grant)
    return AttemptsAnswer(
        runs=[
            RunAttemptsAnswer(
                run=run.run,
                attempts=[
                    AttemptAnswer(
                        attempt=attempt.number,
                        started_at=attempt.started_at,
                        superseded_points=attempt.superseded_points,
                    )
                    for attempt in run.attempts
                ],
            )
            for run in runs
        ]
    )
