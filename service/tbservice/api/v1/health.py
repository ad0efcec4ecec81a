"""Whether the process runs, and whether it can work."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Literal, cast

from fastapi import APIRouter, Depends, Request, status
from pydantic import BaseModel, Field

from tbservice import limits, metrics
from tbservice.errors import Unavailable
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database

router = APIRouter(tags=["health"])

ObjectStoreState = Literal["unknown", "available", "unavailable"]


class Readiness:
    """Whether the service can work, found out at most once in `READY_CACHE_SECONDS`, however many ask.

    PostgreSQL alone decides: without the object store scalars, tensors and pages still work, so that a balancer must
    not take the service away. The object store's state is looked up beside, and nobody waits for it.
    """

    def __init__(self, database: Database, objects: ObjectStore) -> None:
        self._database = database
        self._objects = objects
        self._check_lock = threading.Lock()
        self._checked_at = -limits.READY_CACHE_SECONDS
        self._error: Unavailable | None = (
            None  # never raised again itself: its traceback would grow each time
        )
        self._object_store_lock = threading.Lock()
        self._object_store_checked_at = -limits.READY_CACHE_SECONDS
        self.object_store: ObjectStoreState = "unknown"

    def check(self) -> None:
        """Raise Unavailable, which says why, unless PostgreSQL takes writes.

        A success is good for `READY_CACHE_SECONDS`; a failure is looked at again by the next who asks, one at a time.
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

    def check_object_store(self) -> None:
        """Have a thread look whether the object store answers, unless that was done a moment ago."""
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
    """What works."""

    database: Literal["writable"] = Field(
        description="PostgreSQL takes writes; when it does not, the answer is 503"
    )
    object_store: ObjectStoreState = Field(
        description="S3 when it was last looked at; while it is unavailable, only blobs (images, audio, graphs) fail"
    )


def get_readiness(request: Request) -> Readiness:
    """The application's readiness."""
    return cast("Readiness", request.app.state.readiness)


@router.get("/healthz", status_code=status.HTTP_204_NO_CONTENT)
async def is_running() -> None:
    """The process runs and answers."""


@router.get("/readyz")
def is_ready(readiness: Annotated[Readiness, Depends(get_readiness)]) -> ReadyAnswer:
    """PostgreSQL takes writes; 503 when it does not: it is away, a standby, or its disk is full. S3 is only told."""
    readiness.check_object_store()
    readiness.check()
    return ReadyAnswer(database="writable", object_store=readiness.object_store)
