"""Routes for health checks: `/healthz` (liveness) and `/readyz` (readiness)."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import status
from pydantic import BaseModel, Field

from tbservice.api.http.dependencies import from_state
from tbservice.api.http.readiness import ObjectStoreState, Readiness
from tbservice.api.http.routers import make_router

router = make_router(ignores_unknown_query=True, tags=["health"])


class ReadyAnswer(BaseModel):
    """The state of PostgreSQL and S3."""

    database: Literal["writable"] = Field(
        description="PostgreSQL accepts writes; otherwise, the status is 503"
    )
    object_store: ObjectStoreState = Field(
        description="The result of the last check of S3. While it is unavailable, only requests "
        "for objects fail: blobs (images, audio, graphs) and large tensors"
    )
    unavailable_nodes: list[int] | None = Field(
        default=None,
        description="Of a cluster, the nodes that did not answer or could not write at the last "
        "look, by their groupid in pg_dist_node, since anybody may ask: metrics and log have their "
        "addresses. Only their experiments fail. Absent on plain PostgreSQL and before that look",
    )


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
async def is_running() -> None:
    """Return 204: the process runs. Use it as a liveness check."""


@router.get("/readyz", response_model_exclude_none=True)
def is_ready(readiness: Annotated[Readiness, from_state("readiness")]) -> ReadyAnswer:
    """Return 200 if PostgreSQL accepts writes, else 503. Use it as a readiness check.

    503 means that PostgreSQL cannot be reached, is a standby, or has a full disk. The state of S3
    and that of the nodes of a cluster are reported, but do not change the status.
    """
    readiness.check_object_store()
    unavailable = readiness.list_unavailable_nodes()
    readiness.check()
    return ReadyAnswer(
        database="writable", object_store=readiness.object_store, unavailable_nodes=unavailable
    )
