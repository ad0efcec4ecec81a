"""Route that tags runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import status
from pydantic import Field, StringConstraints

from tbservice import limits
from tbservice.api.http.dependencies import MayAdminister, UsesDatabase
from tbservice.api.http.request_models import FewFields
from tbservice.api.http.routers import make_router
from tbservice.runs.run_tags import RUN_TAGGED_ITEMS_MAX, change_run_tags

router = make_router(prefix="/api/v1/experiments/{experiment_id}", tags=["runs"])

_Tags = Annotated[
    list[Annotated[str, StringConstraints(max_length=limits.EXPERIMENT_TAG_CHARS_MAX)]],
    Field(max_length=limits.EXPERIMENT_TAGS_ITEMS_MAX),
]


class RunTagsChange(FewFields):
    """Tags to add to runs, and to remove from them."""

    runs: list[str] = Field(
        min_length=1, max_length=RUN_TAGGED_ITEMS_MAX, description="Names of the runs"
    )
    add: _Tags = Field(default=[], description="Tags that they have from now on")
    remove: _Tags = Field(default=[], description="Tags that they have no longer; case is ignored")


@router.patch("/runs", status_code=status.HTTP_204_NO_CONTENT)
def tag_runs(grant: MayAdminister, change: RunTagsChange, database: UsesDatabase) -> None:
    """Add tags to runs, or remove some; their other tags stay.

    All runs or, if one of the names is no run, none. Repeating the request changes nothing. The
    column `tags` of the table of runs has those of a run and of its experiment.
    """
    with database.transaction(grant) as db:
        change_run_tags(db, grant, change.runs, change.add, change.remove)
