"""Whether the process runs, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter, Response, status

from tbservice.routes.requests import UsesDatabase, UsesObjects

router = APIRouter(tags=["health"])


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
async def is_running() -> None:
    """The process runs and answers."""


@router.get("/readyz", response_class=Response)
def is_ready(database: UsesDatabase, objects: UsesObjects) -> Response:
    """PostgreSQL and the object store answer; 503 when one does not."""
    database.check()
    objects.check()
    return Response(status_code=status.HTTP_200_OK)
