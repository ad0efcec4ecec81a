"""Whether the process runs, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter, Response, status
from sqlalchemy import text

from tbservice.routes.requests import UsesDatabase, UsesObjects

router = APIRouter(tags=["health"])


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
def is_running() -> None:
    """The process runs and answers."""


@router.get("/readyz")
def is_ready(database: UsesDatabase, objects: UsesObjects) -> Response:
    """PostgreSQL and the object store answer; 503 when one does not."""
    with database.transaction() as db:
        db.execute(text("SELECT 1"))
    objects.check()
    return Response(status_code=status.HTTP_200_OK)
