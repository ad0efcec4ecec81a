"""Checks of objects over HTTP: whether the object store has what an experiment's points refer to."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from tbservice import limits
from tbservice.api.http.dependencies import MayRead, UsesDatabase, UsesObjects
from tbservice.api.http.get_and_post import get_and_post
from tbservice.api.v1.point_queries import FewFields, Names
from tbservice.reading import object_checks
from tbservice.reading.object_checks import Fault, Problem
from tbservice.types import Selection

# No ConditionalRoute: objects may be lost while the experiment stays the same.
router = APIRouter(prefix="/api/v1/experiments/{experiment_id}/digests", tags=["verifying"])


class ObjectQuery(FewFields):
    """Which series; what is absent does not narrow it."""

    model_config = ConfigDict(extra="forbid")

    run: Names = Field(default=None, description="Repeatable")
    plugin: str | None = None
    deep: bool = Field(
        default=False, description="Read all bytes and compare their SHA-256, not only the size"
    )
    after: str = Field(default="", description="The `next` of the page before")
    limit: int = Field(
        default=limits.OBJECT_CHECKS_PAGE_ITEMS_MAX,
        ge=1,
        le=limits.OBJECT_CHECKS_PAGE_ITEMS_MAX,
        description="Objects on a page",
    )


class FaultAnswer(BaseModel):
    """An object that is not what a series refers to."""

    run: str
    tag: str
    plugin: str
    first_step: int = Field(description="The first step of the series that refers to it")
    points: int = Field(description="How often the series refers to it")
    sha256: str = Field(description="In hexadecimal")
    size: int = Field(description="Bytes that it should have; 0 when that is not known")
    problem: Problem = Field(
        description="`missing`, `wrong_size`, `unreadable` (the object store fails to read it), or `damaged` (other "
        "bytes than those of the SHA-256; only a deep check finds these)"
    )


class ObjectPageAnswer(BaseModel):
    """A page of a check, in the order of the objects' SHA-256s: each object once, however many points refer to it."""

    objects: int = Field(description="Objects that were checked")
    bytes: int = Field(description="Bytes that they should have")
    faults: list[FaultAnswer]
    next: str | None = Field(description="Give it as `after` to get the next page; null at the end")


@get_and_post(router, "/objects", ObjectQuery, post_for="more runs than a URL holds")
def check_objects(
    grant: MayRead,
    query: ObjectQuery,
    database: UsesDatabase,
    objects: UsesObjects,
    response: Response,
) -> ObjectPageAnswer:
    """Check that the object store has the blobs that the series refer to, with their sizes.

    A page ends early, with a `next`, when the check takes long. What is missing is sent again by
    `tbupload verify --repair`.
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
