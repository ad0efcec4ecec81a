"""The thread that merges scalar tails in the background: when a run pauses or has come to rest, or when they must."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from tbservice import limits, metrics
from tbservice.errors import ServiceError
from tbservice.scalars import compaction
from tbservice.scalars.compaction import PendingRuns
from tbservice.scalars.compaction_backlog import find_unmerged
from tbservice.store.pg.database import Database
from tbservice.types import AppendGrant

REST_SECONDS: Final = 30.0
"""Seconds without a batch after which a run's tails are merged whatever their size."""

PAUSE_SECONDS: Final = 2.0
"""Seconds without a batch after which what is due is merged: while a run is sent in bulk, its batches come first."""

_log = logging.getLogger(__name__)
_Place = tuple[AppendGrant, int]


class Compactor:
    """Merges what `notice` tells it of, and at its start what an earlier process has left unmerged.

    It may be stopped, or die, anywhere: the next one that starts finds what is left in the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wakes = threading.Condition()
        self._overdue: dict[_Place, None] = {}
        # Since when no batch has come; ordered by that.
        self._pausing: dict[_Place, float] = {}
        self._resting: dict[_Place, float] = {}
        self._stops_at: float | None = None  # None until it is told to stop
        self._thread = threading.Thread(target=self._work, name="compactor", daemon=True)
        self._search = threading.Thread(target=self._find_unmerged, name="compactor's search", daemon=True)

    def start(self) -> None:
        """Starts the threads."""
        self._thread.start()
        self._search.start()

    def stop(self) -> None:
        """Merge what is queued, within `merge_stop_seconds_max`, and end the threads; a merge at hand may be cut off.

        Whatever is left is found by the next process that starts.
        """
        with self._wakes:
            self._stops_at = time.monotonic() + limits.merge_stop_seconds_max
            self._wakes.notify()
        for thread in (self._thread, self._search):
            thread.join(max(0.0, self._stops_at - time.monotonic()))

    def _find_unmerged(self) -> None:
        try:
            for grant, run_id, is_due in find_unmerged(self._database):
                with self._wakes:
                    if self._stops_at is not None:
                        return
                    queue = self._pausing if is_due else self._resting
                    queue.setdefault((grant, run_id), time.monotonic())
                    self._note_queue()
                    self._wakes.notify()
        except ServiceError as error:
            _log.warning("the search for unmerged runs stopped, the next start repeats it: %s", error)
        except Exception:  # noqa: BLE001 - a fault of the search is for the log, with its traceback
            _log.exception("the search for unmerged runs failed")

    def notice(self, grant: AppendGrant, runs: PendingRuns) -> None:
        """Queue the runs in which a batch has left something to compact. Thread-safe."""
        now = time.monotonic()
        with self._wakes:
            for places, run_ids in (
                (self._pausing, runs.above_threshold),
                (self._resting, runs.pending),
            ):
                for run_id in run_ids:
                    places.pop((grant, run_id), None)  # to the end
                    places[grant, run_id] = now
            self._overdue.update(((grant, run_id), None) for run_id in runs.urgent)
            self._note_queue()
            self._wakes.notify()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            place, settle = task
            grant, run_id = place
            metrics.note_run_taken_up(is_at_rest=settle)
            try:
                self._merge(grant, run_id, settle=settle)
            except ServiceError as error:  # the database is away; whatever is not merged stays readable
                metrics.note_merge_failure()
                _log.warning("merging stopped: %s", error)
                if self._stops_at is not None:
                    return
                self._queue_again(place, settle=settle)
                time.sleep(1)
            except Exception:  # noqa: BLE001 - a thread that died here would leave every later tail unmerged
                metrics.note_merge_failure()
                _log.exception("merging run %s of experiment %s failed", run_id, grant.experiment_id)

    def _queue_again(self, place: _Place, *, settle: bool) -> None:
        with self._wakes:
            queue = self._resting if settle else self._pausing
            queue.setdefault(place, time.monotonic())
            self._note_queue()

    def _next(self) -> tuple[_Place, bool] | None:
        """The run whose turn it is, and whether it has come to rest; None when the thread is to end."""
        with self._wakes:
            while not self._is_over():
                is_stopping = self._stops_at is not None
                if self._overdue:
                    place = next(iter(self._overdue))
                    del self._overdue[place]
                    self._pausing.pop(place, None)
                    self._note_queue()
                    return place, False
                waits = []
                for places, seconds, is_at_rest in (
                    (self._pausing, PAUSE_SECONDS, False),
                    (self._resting, REST_SECONDS, True),
                ):
                    if places:
                        place, since = next(iter(places.items()))
                        waits.append(since + seconds - time.monotonic())
                        if waits[-1] <= 0 or is_stopping:
                            del places[place]
                            self._note_queue()
                            return place, is_at_rest
                if is_stopping:
                    return None
                self._wakes.wait(min(waits, default=None))
            return None

    def _is_over(self) -> bool:
        return self._stops_at is not None and time.monotonic() >= self._stops_at

    def _note_queue(self) -> None:
        metrics.note_merge_queue(len(self._overdue) + len(self._pausing), len(self._resting))

    def _merge(self, grant: AppendGrant, run_id: int, *, settle: bool) -> None:
        last_tag_id = 0
        while not self._is_over():
            begin = time.perf_counter()
            with self._database.transaction(grant.workspace_id) as db:
                work = compaction.merge_run(db, grant, run_id, last_tag_id, settle=settle)
            if not work.series:
                return
            last_tag_id = work.last_tag_id
            seconds = time.perf_counter() - begin
            metrics.note_merge(seconds, work.series, work.tail_points, work.sealed_in_place, work.blocks)
