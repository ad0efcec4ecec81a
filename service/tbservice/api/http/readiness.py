"""Readiness of the process: PostgreSQL decides, S3 and nodes are reported."""

from __future__ import annotations

import threading
import time
from typing import Final, Literal

from tbservice import metrics
from tbservice.db.database import Database
from tbservice.errors import Unavailable
from tbservice.objects.object_store import ObjectStore

READY_CACHE_SECONDS: Final = 2.0
"""Seconds for which /readyz repeats a success: it is polled often, and each check writes 1 MiB."""

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
        self._checked_at = -READY_CACHE_SECONDS
        # Copied when it is raised again: the traceback of one exception grows with each raise.
        self._error: Unavailable | None = None
        self._object_store_lock = threading.Lock()
        self._object_store_checked_at = -READY_CACHE_SECONDS
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
                    or time.monotonic() - self._checked_at >= READY_CACHE_SECONDS
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
            time.monotonic() - self._object_store_checked_at < READY_CACHE_SECONDS
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
