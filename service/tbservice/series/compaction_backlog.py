"""Find the runs that another process has left uncompacted: its queue was only in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth.tables import workspaces
from tbservice.db.clock import read_now
from tbservice.db.database import Database, set_local
from tbservice.series.compaction_thresholds import IDLE_THRESHOLD
from tbservice.series.tables import compaction_backlog
from tbservice.types.grants import AppendGrant
from tbservice.types.identifiers import ExperimentId, WorkspaceId

COMPACTION_SEARCH_SECONDS: Final = 7 * 24 * 3600
"""Seconds since the last write within which experiments are searched for pending compactions.

At the start of a process, and every `COMPACTION_SEARCH_ALL_SECONDS`.
"""

_PAGE_ITEMS: Final = 100
"""Experiments listed at a time."""


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
