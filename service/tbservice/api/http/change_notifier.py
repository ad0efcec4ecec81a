"""Notification of the live tails of this worker when their experiments change."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

from tbservice import limits
from tbservice.admission import admitted
from tbservice.db.database import Database
from tbservice.errors import ServiceError, Unavailable
from tbservice.experiment_values import UploadStatus
from tbservice.reading.changes import list_statuses, list_versions
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

T = TypeVar("T")


class ExperimentState(NamedTuple):
    """The version of an experiment, and how its upload is: None without one."""

    version: int
    status: UploadStatus | None


@dataclass(slots=True)
class _FollowedExperiment:
    """An experiment with its number of tails, and its state as of the last poll (None before).

    `checked_at` has the time of the monotonic clock at which each secret was last allowed to read.
    """

    tails: int = 0
    state: ExperimentState | None = None
    changes: asyncio.Event = field(default_factory=asyncio.Event)
    checked_at: dict[str | None, float] = field(default_factory=dict)


DELETED: Final = ExperimentState(-1, None)
"""The state of an experiment that has been deleted."""

_GATHERING_SECONDS: Final = 0.05
"""Seconds between a commit and the look at it: others that come meanwhile are looked at with it."""


class ChangeNotifier:
    """Wakes the tails of one worker: polls the versions of all their experiments.

    Polls every `LIVE_POLL_SECONDS`, with two queries per workspace, and what this worker itself has
    committed at once, but each experiment once in that time. Between polls it occupies no thread
    and no connection. All methods but `note_commit` must be called in the event loop.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followed: dict[ReadGrant, _FollowedExperiment] = {}
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._tails: Counter[ExperimentId] = Counter()
        self._looked_at: dict[ExperimentId, float] = {}
        self._committed: set[ExperimentId] = set()
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    def subscribe(self, grant: ReadGrant) -> None:
        """Add a tail of this experiment, until `unsubscribe`.

        Raises TooManyRequests at the caller's limit of tails, Unavailable after `close`.
        """
        if self.is_closed:
            raise Unavailable("this worker is shutting down; connect again")
        current = admitted.current()
        current.shares.tails.acquire(current.caller)
        self._followed.setdefault(grant, _FollowedExperiment()).tails += 1
        self._tails[grant.experiment_id] += 1
        self._loop = asyncio.get_running_loop()
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll_versions())

    def unsubscribe(self, grant: ReadGrant) -> None:
        """Remove a tail that `subscribe` added."""
        current = admitted.current()
        current.shares.tails.release(current.caller)
        self._followed[grant].tails -= 1
        if not self._followed[grant].tails:
            del self._followed[grant]
        self._tails[grant.experiment_id] -= 1
        if not self._tails[grant.experiment_id]:
            del self._tails[grant.experiment_id]
            self._looked_at.pop(grant.experiment_id, None)

    def note_commit(self, experiment_id: ExperimentId) -> None:
        """Look soon at an experiment that this worker has changed, if it is followed here.

        May be called from any thread.
        """
        loop = self._loop
        if loop is not None and experiment_id in self._tails:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._look_soon, experiment_id)

    def _look_soon(self, experiment_id: ExperimentId) -> None:
        now = time.monotonic()
        looked_at = self._looked_at.get(experiment_id, -math.inf)
        # One that changes all the time is seen by the polls: a look costs its followers an event.
        # Its last tail may have left meanwhile.
        if now - looked_at >= limits.LIVE_POLL_SECONDS and experiment_id in self._tails:
            self._looked_at[experiment_id] = now
            self._committed.add(experiment_id)
            self._wake.set()

    def close(self) -> None:
        """End every tail and refuse new ones."""
        self.is_closed = True
        self._wake.set()
        for followed in self._followed.values():
            followed.changes.set()

    async def wait_closed(self) -> None:
        """Wait, after `close`, for the end of all reads; then the database can be closed."""
        tasks = [task for task in (self._poll_task, *self._flights.values()) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def state(self, grant: ReadGrant) -> ExperimentState | None:
        """Return the experiment's state as of the last poll, None before the first."""
        return self._followed[grant].state

    def checked_at(self, grant: ReadGrant, secret: str | None) -> float:
        """Return when the secret was last allowed to read, for all of its tails."""
        return self._followed[grant].checked_at.setdefault(secret, time.monotonic())

    def note_check(self, grant: ReadGrant, secret: str | None) -> None:
        """Note that the secret is allowed to read now."""
        self._followed[grant].checked_at[secret] = time.monotonic()

    async def wait(self, grant: ReadGrant, state: ExperimentState | None, seconds: float) -> None:
        """Wait for another state of the experiment, for `close`, or for at most `seconds`."""
        followed = self._followed[grant]
        if followed.state == state and not self.is_closed:
            with suppress(TimeoutError):
                await asyncio.wait_for(followed.changes.wait(), seconds)

    async def single_flight(self, key: Hashable, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result; concurrent calls with one key share a run.

        Raises as `work`.
        """
        # The run acquires its own turn, perhaps the only one of this caller.
        admitted.current().turn.release()
        task: asyncio.Task[T] | None = self._flights.get(key)
        if task is None:
            task = self._flights[key] = asyncio.create_task(self._in_turn(work))
            task.add_done_callback(lambda done: self._end_flight(key, done))
        return await asyncio.shield(task)

    def _end_flight(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        del self._flights[key]
        if not done.cancelled():
            # Marks the exception as retrieved: all callers may have disconnected.
            done.exception()

    def _in_turn(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        async def run() -> T:
            async with admitted.turn():
                return await run_in_threadpool(work)

        return run()

    async def _poll_versions(self) -> None:
        due_at = -math.inf
        while self._followed and not self.is_closed:
            grants = list(self._followed)
            if (now := time.monotonic()) < due_at:
                grants = [grant for grant in grants if grant.experiment_id in self._committed]
            else:
                due_at = now + limits.LIVE_POLL_SECONDS
            self._committed.clear()
            # While the database is unavailable, the known versions stay; the next poll retries.
            with suppress(ServiceError):
                states = await run_in_threadpool(self._read_states, grants)
                self._publish(grants, states)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, due_at - time.monotonic()))
                await asyncio.sleep(0 if self.is_closed else _GATHERING_SECONDS)
            if not self.is_closed:
                self._wake.clear()

    def _read_states(self, grants: Iterable[ReadGrant]) -> dict[ExperimentId, ExperimentState]:
        by_workspace: defaultdict[WorkspaceId, list[ExperimentId]] = defaultdict(list)
        for grant in grants:
            by_workspace[grant.workspace_id].append(grant.experiment_id)
        states: dict[ExperimentId, ExperimentState] = {}
        for workspace_id, experiment_ids in by_workspace.items():
            with self._database.transaction(workspace_id) as db:
                versions = list_versions(db, experiment_ids)
                statuses = list_statuses(db, experiment_ids)
            states |= {
                id_: ExperimentState(version, statuses.get(id_))
                for id_, version in versions.items()
            }
        return states

    def _publish(
        self, grants: Iterable[ReadGrant], states: dict[ExperimentId, ExperimentState]
    ) -> None:
        for grant in grants:
            followed = self._followed.get(grant)
            state = states.get(grant.experiment_id, DELETED)
            if followed is not None and followed.state != state:
                followed.state = state
                followed.changes.set()
                followed.changes = asyncio.Event()
