"""The ASGI middleware of admission control; the package's docstring describes the shares."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tbservice.admission.admitted import admit
from tbservice.admission.answers import ResponseSender
from tbservice.admission.bodies import RequestBody
from tbservice.admission.callers import CallerLookup
from tbservice.admission.pacing import PROBE_PATHS
from tbservice.admission.refusals import hold_refusal, refuse
from tbservice.admission.shares import Caller
from tbservice.admission.turns import Turn
from tbservice.admission.worker_shares import WorkerShares
from tbservice.auth import grants
from tbservice.db.database import Database
from tbservice.errors import TooManyRequests, Unauthenticated, forget_frames

_EXPERIMENT: Final = re.compile(r"/api/v[01]/experiments/([^/]+)(/.*)?")


class AdmissionMiddleware:
    """Middleware that shares a worker fairly among callers."""

    def __init__(
        self,
        app: ASGIApp,
        database: Database,
        shares: WorkerShares,
        callers: CallerLookup,
        refuse: Callable[[Scope, TooManyRequests], Response] = refuse,
    ) -> None:
        """Begin with nothing in use. `refuse` returns the response to a refused request."""
        self._app = app
        self._refuse = refuse
        self._database = database
        self._shares = shares
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; respond 429 if its caller is over its share."""
        # A balancer that gets no answer from a busy worker would take it for dead.
        if scope["type"] != "http" or scope["path"] in PROBE_PATHS:
            await self._app(scope, receive, send)
            return

        caller = await self._callers.identify(scope)
        admitted = admit(caller, self._shares)
        turn = admitted.turn
        body = RequestBody(scope, receive, admitted, lambda: self._check_right(scope, caller))
        answer = ResponseSender(scope, send, admitted)

        try:
            if turn.try_acquire() or await self._wait(turn, body):
                await self._app(scope, body.receive, answer.send)
        except TooManyRequests as error:
            if answer.has_begun:
                raise
            forget_frames(error)
            # Its share is for others, while its client waits for the refusal.
            turn.release()
            body.close()
            if await hold_refusal(scope):
                await answer.send_refusal(self._refuse(scope, error))
        finally:
            turn.release()
            body.close()

    async def _wait(self, turn: Turn, body: RequestBody) -> bool:
        """Wait for the turn; return False if the client disconnects first.

        Raises TooManyRequests.
        """
        if not body.is_absent:
            # Watching for a disconnect means receiving, and the body would fill memory uncounted.
            await turn.wait()
            return True

        # Both at once: a client that has left must not have its work done.
        waiting = asyncio.create_task(turn.wait())
        leaving = asyncio.create_task(body.wait_until_client_leaves())
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                waiting.result()
                return True
            return False
        finally:
            for task in (waiting, leaving):
                task.cancel()
                with suppress(asyncio.CancelledError, TooManyRequests):
                    await task

    async def _check_right(self, scope: Scope, caller: Caller) -> None:
        """Raise, as the route would, if an anonymous caller may not read what the request names."""
        if not caller.is_anonymous:
            return

        match = _EXPERIMENT.fullmatch(scope["path"])
        if match is None:
            raise Unauthenticated("a token is needed: send it as 'Authorization: Bearer <token>'")
        await run_in_threadpool(self._check_anonymous_read, match.group(1))

    def _check_anonymous_read(self, experiment_id: str) -> None:
        with self._database.without_transaction() as db:
            grants.grant_read(db, experiment_id, None)
