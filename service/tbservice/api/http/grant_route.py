"""Routes whose grant is looked up in the worker thread that then does their work.

FastAPI runs each dependency that blocks, the function of the route, and the check of its result in
a worker thread of its own. Each hop costs about 0.1 ms of processor time, as much as a statement of
PostgreSQL (decision 41).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from sqlalchemy import Connection
from starlette.concurrency import run_in_threadpool

from tbservice.db.database import Database
from tbservice.errors import MalformedRequest
from tbservice.types.grants import Grant
from tbservice.types.identifiers import ExperimentId

_PENDING_KEY: Final = "tbhub.pending_grants"


class PendingGrant:
    """A grant that a request needs. Routes get the grant itself: see `GrantRoute`."""

    def __init__(
        self,
        request: Request,
        database: Database,
        look_up: Callable[[Connection], Grant],
        experiment_id: ExperimentId | None = None,
    ) -> None:
        """Have the grant looked up before the request is worked on.

        Args:
            request: The request.
            database: Where to look it up.
            look_up: Returns the grant, or raises an error of `auth.grants`.
            experiment_id: The experiment that it is for; in a cluster, its node is asked.
        """
        self._database = database
        self._look_up = look_up
        self._experiment_id = experiment_id
        self._grant: Grant | None = None
        request.scope.setdefault(_PENDING_KEY, []).append(self)

    def get(self) -> Grant:
        """Return the grant, looked up by the first call. Blocks; raises as `look_up` does."""
        if self._grant is None:
            with self._database.without_transaction(self._experiment_id) as db:
                self._grant = self._look_up(db)
        return self._grant


async def look_up_grants(request: Request) -> None:
    """Look up the grants that the request needs now: before its body is read. Raises as they do."""
    pending: list[PendingGrant] = request.scope.get(_PENDING_KEY, [])
    await run_in_threadpool(lambda: [grant.get() for grant in pending])


class GrantRoute(APIRoute):
    """Route that passes grants, in place of each `PendingGrant`, to its function."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _with_grants(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the route's handler: who has no right learns of no other mistake."""
        handle = super().get_route_handler()

        async def handle_grants_first(request: Request) -> Response:
            try:
                return await handle(request)
            except (RequestValidationError, MalformedRequest):
                await look_up_grants(request)
                raise
            finally:
                # They refer to the request, which would refer to itself: garbage of 60 objects.
                request.scope.pop(_PENDING_KEY, None)

        return handle_grants_first


def _with_grants(endpoint: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a route as a coroutine, which looks up its grants first.

    One that blocks is called in the same worker thread.
    """
    if asyncio.iscoroutinefunction(endpoint):

        @functools.wraps(endpoint)
        async def call(**values: Any) -> Any:
            return await endpoint(**await run_in_threadpool(_get_all, values))

    else:

        @functools.wraps(endpoint)
        async def call(**values: Any) -> Any:
            return await run_in_threadpool(lambda: endpoint(**_get_all(values)))

    return call


def _get_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.get() if isinstance(value, PendingGrant) else value
        for name, value in values.items()
    }
