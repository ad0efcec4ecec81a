"""The thread that merges scalar tails in the background: when they are due, and when a run has come to rest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Final

from tbservice import metrics
from tbservice.domain import merging
from tbservice.errors import ServiceError
from tbservice.store.database import Database
from tbservice.types import AppendGrant

REST_SECONDS: Final = 30.0
"""Seconds without a batch after which a run's tails are merged whatever their size."""

_log = logging.getLogger(__name__)
_Place = tuple[AppendGrant, int]


class Merger:
    """Merges what `notice` tells it of. It may be stopped, or die, anywhere: a later batch brings the run up again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wakes = threading.Condition()
        self._due: dict[_Place, None] = {}
        self._resting: dict[_Place, float] = {}
        self._is_stopping = False
        self._thread = threading.Thread(target=self._work, name="merger", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the merge at hand."""
        with self._wakes:
            self._is_stopping = True
            self._wakes.notify()
        self._thread.join()

    def notice(self, grant: AppendGrant, unsettled_run_ids: Iterable[int], due_run_ids: Iterable[int]) -> None:
        """Tells in which runs a batch has left something to merge once they rest, and in which it is due now."""
        now = time.monotonic()
        with self._wakes:
            for run_id in unsettled_run_ids:
                self._resting.pop((grant, run_id), None)  # to the end: the dictionary is ordered by time
                self._resting[grant, run_id] = now
            self._due.update(((grant, run_id), None) for run_id in due_run_ids)
            metrics.note_merge_queue(len(self._due), len(self._resting))
            self._wakes.notify()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            (grant, run_id), settle = task
            metrics.note_run_taken_up(is_at_rest=settle)
            try:
                self._merge(grant, run_id, settle=settle)
            except ServiceError as error:  # the database is away; whatever is not merged stays readable
                metrics.note_merge_failure()
                _log.warning("merging stopped: %s", error)
                time.sleep(1)
            except Exception:  # noqa: BLE001 - a thread that died here would leave every later tail unmerged
                metrics.note_merge_failure()
                _log.exception("merging run %s of experiment %s failed", run_id, grant.experiment_id)

    def _next(self) -> tuple[_Place, bool] | None:
        with self._wakes:
            while not self._is_stopping:
                if self._due:
                    place = next(iter(self._due))
                    del self._due[place]
                    metrics.note_merge_queue(len(self._due), len(self._resting))
                    return place, False
                wait = None
                if self._resting:
                    place, since = next(iter(self._resting.items()))
                    wait = since + REST_SECONDS - time.monotonic()
                    if wait <= 0:
                        del self._resting[place]
                        metrics.note_merge_queue(len(self._due), len(self._resting))
                        return place, True
                self._wakes.wait(wait)
            return None

    def _merge(self, grant: AppendGrant, run_id: int, *, settle: bool) -> None:
        last_tag_id = 0
        while not self._is_stopping:
            begin = time.perf_counter()
            with self._database.transaction(grant.workspace_id) as db:
                work = merging.merge_run(db, grant, run_id, last_tag_id, settle=settle)
            if not work.series:
                return
            last_tag_id = work.last_tag_id
            seconds = time.perf_counter() - begin
            metrics.note_merge(seconds, work.series, work.tail_points, work.sealed_in_place, work.blocks)
