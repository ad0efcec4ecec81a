"""Routes for health checks: `/healthz` (liveness) and `/readyz` (readiness)."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Literal, cast

from fastapi import Depends, Request, status
from pydantic import BaseModel, Field

from tbservice import limits, metrics
from tbservice.api.http.routers import make_router
from tbservice.errors import Unavailable
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database

router = make_router(ignores_unknown_query=True, tags=["health"])

ObjectStoreState = Literal["unknown", "available", "unavailable"]


class Readiness:
    """Readiness of the process, checked at most once in `READY_CACHE_SECONDS` for all requests.

    Only PostgreSQL decides. Without the object store, scalars, tensors and pages still work, and
    without a node of a cluster, the experiments of the other nodes: a load balancer must not remove
    the process. Their state is checked in the background and reported.
    """

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects
        self._check_lock = threading.Lock()
        self._checked_at = -limits.READY_CACHE_SECONDS
        # Copied when it is raised again: the traceback of one exception grows with each raise.
        self._error: Unavailable | None = None
        self._object_store_lock = threading.Lock()
        self._object_store_checked_at = -limits.READY_CACHE_SECONDS
        self.object_store: ObjectStoreState = "unknown"

    def check(self) -> None:
        """Raise Unavailable, with the reason, unless PostgreSQL accepts writes.

        A success is cached for `READY_CACHE_SECONDS`. After a failure, the next call checks again;
        calls during a check return the previous result, except that the first check is waited for.
        """
        is_first = self._checked_at < 0
        if self._check_lock.acquire(blocking=is_first):
            try:
                if (
                    self._error is not None
                    or time.monotonic() - self._checked_at >= limits.READY_CACHE_SECONDS
                ):
                    self._check_now()
            finally:
                self._check_lock.release()

        error = self._error
        if error is not None:
            raise Unavailable(error.detail) from error.__cause__

    def _check_now(self) -> None:
        try:
            self._database.check_writable()
        except Unavailable as error:
            self._error = error
        else:
            self._error = None
        self._checked_at = time.monotonic()

    def list_unavailable_nodes(self) -> list[int] | None:
        """Return `Database.list_unavailable_nodes`."""
        return self._database.list_unavailable_nodes()

    def check_object_store(self) -> None:
        """Start a check of the object store in a thread, at most once in `READY_CACHE_SECONDS`."""
        if (
            time.monotonic() - self._object_store_checked_at < limits.READY_CACHE_SECONDS
            or not self._object_store_lock.acquire(blocking=False)
        ):
            return
        threading.Thread(
            target=self._check_object_store_now, name="object store probe", daemon=True
        ).start()

    def _check_object_store_now(self) -> None:
        try:
            self._objects.check()
        except Unavailable:
            self.object_store = "unavailable"
        else:
            self.object_store = "available"
        finally:
            metrics.observe_object_store(is_available=self.object_store == "available")
            self._object_store_checked_at = time.monotonic()
            self._object_store_lock.release()


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


def get_readiness(request: Request) -> Readiness:
    """Return the application's `Readiness`."""
    return cast("Readiness", request.app.state.readiness)


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
async def is_running() -> None:
    """Return 204: the process runs. Use it as a liveness check."""


@router.get("/readyz", response_model_exclude_none=True)
def is_ready(readiness: Annotated[Readiness, Depends(get_readiness)]) -> ReadyAnswer:
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
