"""Routes for checking the objects in S3 that an experiment's points refer to."""

from __future__ import annotations

from typing import Final

from fastapi import Response
from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.http.request_models import FewFields, Names
from tbservice.api.http.routers import make_router
from tbservice.reading import object_checks
from tbservice.reading.object_checks import Fault, Problem
from tbservice.types.sampling import Selection

OBJECT_CHECKS_PAGE_ITEMS_MAX: Final = 10_000
"""Objects on one page of an object check; `DIGEST_PAGE_SECONDS` may end it earlier."""


# No ConditionalRoute: objects may be lost while the experiment stays the same.
router = make_router(prefix="/api/v1/experiments/{experiment_id}/digests", tags=["verifying"])


class ObjectQuery(FewFields, strict=True):
    """The selected series: those of the runs and the plugin; an absent field selects all."""

    run: Names = Field(default=None, description="Name of a run; repeatable")
    plugin: str | None = Field(default=None, description="Name of the plugin that owns the series")
    deep: bool = Field(
        default=False,
        description="Read the bytes of each object and compare their SHA-256, not only its size",
    )
    after: str = Field(default="", description="`next` of the previous page")
    limit: int = Field(
        default=OBJECT_CHECKS_PAGE_ITEMS_MAX,
        ge=1,
        le=OBJECT_CHECKS_PAGE_ITEMS_MAX,
        description="Maximum objects per page",
    )


class FaultAnswer(BaseModel):
    """An object that is missing, or differs from what a series refers to."""

    run: str
    tag: str
    plugin: str
    first_step: int = Field(description="First step of the series that refers to the object")
    points: int = Field(description="Number of references to the object in the series")
    sha256: str = Field(description="SHA-256 that the object must have, in hexadecimal")
    size: int = Field(description="Size in bytes that the object must have; 0 if unknown")
    problem: Problem = Field(
        description="`missing`, `wrong_size`, `unreadable` (the object store fails to read it), or "
        "`damaged` (its bytes do not have the SHA-256; only a deep check detects this)"
    )


class ObjectPageAnswer(BaseModel):
    """A page of checked objects, by SHA-256; each object is checked once for all its references."""

    objects: int = Field(description="Number of checked objects")
    bytes: int = Field(description="Total size in bytes that these objects must have")
    faults: list[FaultAnswer]
    next: str | None = Field(description="Page token: pass it as `after`; null on the last page")


@get_and_post(router, "/objects", post_for="more runs than fit in a URL")
def check_objects(
    grant: MayRead,
    query: ObjectQuery,
    database: UsesDatabase,
    objects: UsesObjects,
    response: Response,
) -> ObjectPageAnswer:
    """Check that the object store has the objects that the series refer to, with their sizes.

    If the check takes long, a page has fewer than `limit` objects, and a `next`. To upload missing
    objects again, run `tbupload verify --repair`.
    """
    response.headers["Cache-Control"] = "no-store"
    selection = Selection(query.plugin, None if query.run is None else frozenset(query.run))
    page = object_checks.check_objects(
        database, objects, grant, selection, query.after, query.limit, is_deep=query.deep
    )
    faults = [_fault_answer(fault) for fault in page.faults]
    return ObjectPageAnswer(
        objects=page.objects, bytes=page.bytes, faults=faults, next=page.next_page_token
    )


def _fault_answer(fault: Fault) -> FaultAnswer:
    return FaultAnswer(
        run=fault.series.run,
        tag=fault.series.tag,
        plugin=fault.series.plugin,
        first_step=fault.first_step,
        points=fault.points,
        sha256=fault.sha256.hex(),
        size=fault.size,
        problem=fault.problem,
    )
