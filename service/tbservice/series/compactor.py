"""The background thread that compacts runs: when they pause, when they are idle, or at once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice import limits, metrics, traces
from tbservice.auth.tables import workspaces
from tbservice.db.clock import read_now
from tbservice.db.database import Database, set_local
from tbservice.errors import ServiceError
from tbservice.series import compaction
from tbservice.series.compaction_thresholds import IDLE_THRESHOLD, PendingRuns
from tbservice.series.tables import compaction_backlog
from tbservice.types.grants import AppendGrant, ExperimentGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

COMPACTION_SEARCH_ALL_SECONDS: Final = 24 * 3600
"""Seconds after which a process repeats its search of `COMPACTION_SEARCH_SECONDS`."""

COMPACTION_SEARCH_RECENT_SECONDS: Final = 3600
"""Seconds since the last write within which a search looks; longer than a queue ever waits."""

COMPACTION_SETTLED_SECONDS: Final = 180
"""Seconds without data after which a search takes an experiment's small write buffers, too.

Until then, its runs may be in the queue of the host that receives them.
"""

COMPACTION_SEARCH_INTERVAL_SECONDS: Final = 600.0
"""Mean seconds between two searches of one process for what another host has left uncompacted."""

IDLE_SECONDS: Final = 30.0
"""Seconds without a batch after which a run is idle: its small write buffers are compacted too."""

PAUSE_SECONDS: Final = 2.0
"""Seconds without a batch after which series above the threshold are compacted.

Until then the batches of a bulk upload have priority.
"""

_log = logging.getLogger(__name__)

_RANDOM: Final = random.SystemRandom()
"""Not the shared generator, which others may have seeded to repeat what they do."""
_RunKey = tuple[ExperimentGrant, int]

COMPACTION_SEARCH_SECONDS: Final = 7 * 24 * 3600
"""Seconds since the last write within which experiments are searched for pending compactions.

At the start of a process, and every `COMPACTION_SEARCH_ALL_SECONDS`.
"""
_PAGE_ITEMS: Final = 100
"""Experiments listed at a time."""


class Compactor:
    """Compacts the runs in its queue, and those that another process has left.

    For these it searches at its start and from time to time. It may be stopped or killed at any
    point: another one, on any host, finds the remaining runs in the database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._condition = threading.Condition()
        self._urgent: dict[_RunKey, None] = {}
        # The time of a run's last batch; in this order.
        self._above_threshold: dict[_RunKey, float] = {}
        self._idle: dict[_RunKey, float] = {}
        self._stop_deadline: float | None = None  # None until `stop` is called
        # Daemons: a statement that hangs must not keep a stopping process alive.
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
        self._stopping = threading.Event()
        self._search = threading.Thread(
            target=self._search_repeatedly, name="compactor's search", daemon=True
        )

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        self._search.start()

    def stop(self) -> None:
        """Compact what is queued, within `COMPACTION_STOP_SECONDS_MAX`, and end the threads.

        A compaction in progress may be cut off. The next process finds what remains.
        """
        with self._condition:
            self._stop_deadline = time.monotonic() + limits.COMPACTION_STOP_SECONDS_MAX
            self._condition.notify()
        self._stopping.set()
        for thread in (self._thread, self._search):
            thread.join(max(0.0, self._stop_deadline - time.monotonic()))

    def _search_repeatedly(self) -> None:
        searched_all_at = None
        while not self._stopping.is_set():
            now = time.monotonic()
            if searched_all_at is None or now - searched_all_at > (COMPACTION_SEARCH_ALL_SECONDS):
                searched_all_at = now if self._enqueue_backlog() else None
            else:
                self._enqueue_backlog(COMPACTION_SEARCH_RECENT_SECONDS, COMPACTION_SETTLED_SECONDS)
            # At random, so that the processes of all hosts search in turn.
            share = _RANDOM.uniform(0.5, 1.5)
            self._stopping.wait(share * COMPACTION_SEARCH_INTERVAL_SECONDS)

    def _enqueue_backlog(self, *seconds: int) -> bool:
        """Queue what `find_backlog` finds; return whether it could search."""
        try:
            for grant, run_id, is_above_threshold in find_backlog(self._database, *seconds):
                with self._condition:
                    if self._stop_deadline is not None:
                        return True
                    queue = self._above_threshold if is_above_threshold else self._idle
                    queue.setdefault((grant, run_id), time.monotonic())
                    self._observe_queue()
                    self._condition.notify()
        except ServiceError as error:
            _log.warning("the search for uncompacted runs stopped and is repeated: %s", error)
            return False
        except Exception:  # noqa: BLE001 - nobody joins the thread: log the traceback
            _log.exception("the search for uncompacted runs failed")
        return True

    def enqueue(self, grant: ExperimentGrant, runs: PendingRuns) -> None:
        """Queue the runs in which a batch has left something to compact. Thread-safe."""
        now = time.monotonic()
        with self._condition:
            # Else the thread wakes in time for the first of a queue: runs are added as the last.
            is_awaited = bool(runs.urgent)
            for queue, run_ids in (
                (self._above_threshold, runs.above_threshold),
                (self._idle, runs.pending),
            ):
                is_awaited |= bool(run_ids) and not queue
                for run_id in run_ids:
                    queue.pop((grant, run_id), None)  # so that it becomes the last
                    queue[grant, run_id] = now
            # A dict as an ordered set: a run that is urgent again keeps its place, and is served
            # once.
            self._urgent.update(((grant, run_id), None) for run_id in runs.urgent)
            self._observe_queue()
            if is_awaited:
                self._condition.notify()

    def _run(self) -> None:
        while (task := self._next_run()) is not None:
            run_key, is_idle = task
            grant, run_id = run_key
            metrics.observe_run_compaction(is_idle=is_idle)
            try:
                with traces.span("compaction"):
                    self._compact(grant, run_id, compact_idle=is_idle)
            except ServiceError as error:  # no database; uncompacted points remain readable
                if self._stop_deadline is not None:  # PostgreSQL may stop with us, as at a Ctrl-C
                    return
                metrics.observe_compaction_failure()
                _log.warning("compaction stopped: %s", error)
                # PostgreSQL may be away for long: one attempt a second is no load, and one warning
                # each says so.
                self._requeue(run_key, is_idle=is_idle)
                time.sleep(1)
            except Exception:  # noqa: BLE001 - else the thread ends, and nothing more is compacted
                metrics.observe_compaction_failure()
                _log.exception(
                    "compacting run %s of experiment %s failed", run_id, grant.experiment_id
                )

    def _requeue(self, run_key: _RunKey, *, is_idle: bool) -> None:
        with self._condition:
            queue = self._idle if is_idle else self._above_threshold
            queue.setdefault(run_key, time.monotonic())
            self._observe_queue()

    def _next_run(self) -> tuple[_RunKey, bool] | None:
        """Return the next run to compact and whether it is idle; None if the thread is to end."""
        with self._condition:
            while not self._is_past_deadline():
                is_stopping = self._stop_deadline is not None
                if self._urgent:
                    run_key = next(iter(self._urgent))
                    del self._urgent[run_key]
                    self._above_threshold.pop(run_key, None)
                    self._observe_queue()
                    return run_key, False

                waits = []
                for queue, seconds, is_idle in (
                    (self._above_threshold, PAUSE_SECONDS, False),
                    (self._idle, IDLE_SECONDS, True),
                ):
                    if queue:
                        run_key, since = next(iter(queue.items()))
                        waits.append(since + seconds - time.monotonic())
                        if waits[-1] <= 0 or is_stopping:
                            del queue[run_key]
                            self._observe_queue()
                            return run_key, is_idle

                if is_stopping:
                    return None
                # Until the next pause ends, or until `enqueue` or `stop` notifies.
                self._condition.wait(min(waits, default=None))
            return None

    def _is_past_deadline(self) -> bool:
        return self._stop_deadline is not None and time.monotonic() >= self._stop_deadline

    def _observe_queue(self) -> None:
        metrics.observe_compaction_queue(
            len(self._urgent) + len(self._above_threshold), len(self._idle)
        )

    def _compact(self, grant: ExperimentGrant, run_id: int, *, compact_idle: bool) -> None:
        last_tag_id = 0
        while not self._is_past_deadline():
            begin = time.perf_counter()
            # A transaction per page of series: locks are held for one page, and a kill loses one
            # page.
            with self._database.transaction(grant) as db:
                result = compaction.compact_run(
                    db, grant, run_id, last_tag_id, compact_idle=compact_idle
                )
            if not result.series:
                return

            last_tag_id = result.last_tag_id
            seconds = time.perf_counter() - begin
            metrics.observe_compaction(
                seconds, result.series, result.tail_points, result.sealed_in_place, result.blocks
            )


class BacklogRun(NamedTuple):
    """A run to compact: at the next pause if above the threshold, else when it is idle."""

    grant: AppendGrant
    run_id: int
    is_above_threshold: bool


def find_backlog(
    database: Database,
    seconds: int = COMPACTION_SEARCH_SECONDS,
    settled_seconds: int = 0,
) -> Iterator[BacklogRun]:
    """Yield the uncompacted runs of all workspaces, in recently written experiments.

    Yields none while another process searches, as several workers start at once. All is one
    transaction with one indexed query per experiment; it uses a connection, but no lock that others
    wait for, and no snapshot. Raises Unavailable.

    Args:
        database: The database, whose clock counts: those of hosts may differ.
        seconds: Experiments written to within these last seconds.
        settled_seconds: Only runs above the threshold are returned of experiments written to within
            these: other processes may still receive data of the others.
    """
    with database.transaction() as db:
        if not compaction_backlog.try_lock_search(db):
            return
        now = read_now(db)
        since, settled = (now - timedelta(seconds=each) for each in (seconds, settled_seconds))
        for workspace_id, _ in workspaces.list_all(db):
            # Row-level security shows one workspace at a time:
            # https://www.postgresql.org/docs/18/ddl-rowsecurity.html
            set_local(db, "workspace_id", str(workspace_id))
            for written_at, experiment_id in _iter_experiments(db, workspace_id, since):
                grant = AppendGrant(workspace_id, experiment_id)
                threshold = (limits.WRITE_BUFFER_ROWS_MAX, limits.WRITE_BUFFER_POINTS_MAX)
                for run_id, is_above_threshold in compaction_backlog.list_backlog_runs(
                    db, experiment_id, IDLE_THRESHOLD, threshold
                ):
                    # An experiment that still receives data is in the queue of the host that
                    # receives it.
                    if is_above_threshold or written_at <= settled:
                        yield BacklogRun(grant, run_id, is_above_threshold)


def _iter_experiments(
    db: Connection, workspace_id: WorkspaceId, since: datetime
) -> Iterator[tuple[datetime, ExperimentId]]:
    """Yield the experiments with data since then, and its time, frozen copies included."""
    position = since, ""
    while page := compaction_backlog.list_written(db, workspace_id, position, _PAGE_ITEMS):
        yield from page
        position = page[-1]
