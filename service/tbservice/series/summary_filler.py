"""The background thread that computes unknown summaries of scalar series and stores them.

They are unknown of series from before migration 0014, of those that a server of an earlier release
has written to, and after points were replaced, until compaction computes them. Readers that met
some name the experiment; nothing is searched for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final

from tbservice.db.database import Database
from tbservice.errors import ServiceError
from tbservice.grouping import group_by_weight
from tbservice.series import summary_scan
from tbservice.series.tables import summary_rows
from tbservice.types.grants import ReadGrant

_SERIES_PER_PAGE: Final = 256

_POINTS_PER_PAGE: Final = 1_000_000
"""Points read in one snapshot, unless a single series has more."""

_log = logging.getLogger(__name__)


def fill(database: Database, grant: ReadGrant, after: int = 0) -> int | None:
    """Compute a page of an experiment's unknown summaries and store them.

    No row is locked while points are read: a summary is stored if its series is as it was. One that
    grows meanwhile remains unknown.

    Args:
        database: The database.
        grant: Grant on the experiment.
        after: The result of the previous call; 0 for the first page.

    Returns:
        The id of the last series of the page; None if there was none left.
    """
    with database.snapshot(grant) as db:
        listed = summary_rows.list_unknown(db, grant.experiment_id, after, _SERIES_PER_PAGE)
        page = next(group_by_weight(listed, lambda row: row.count, _POINTS_PER_PAGE), None)
        if page is None:
            return None
        ids = [row.series_id for row in page]
        computed = summary_scan.compute(db, grant.experiment_id, ids)
    if computed:
        with database.transaction(grant) as db:
            summary_rows.store(
                db, grant.experiment_id, {row: computed[row.series_id] for row in page}
            )
    return page[-1].series_id


class SummaryFiller:
    """Fills the summaries of the experiments in its queue, one after the other."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._condition = threading.Condition()
        self._queue: dict[ReadGrant, None] = {}
        self._is_stopping = False
        # A daemon: a statement that hangs must not keep a stopping process alive.
        self._thread = threading.Thread(target=self._run, name="summaries", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end after the page in progress; what remains is unknown until read."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()

    def enqueue(self, grants: Iterable[ReadGrant]) -> None:
        """Queue experiments of which a reader met unknown summaries. Thread-safe."""
        with self._condition:
            self._queue |= dict.fromkeys(grants)
            if self._queue:  # most readers met none
                self._condition.notify()

    def _run(self) -> None:
        while (grant := self._next()) is not None:
            try:
                last: int | None = 0
                while last is not None and not self._is_stopping:
                    last = fill(self._database, grant, last)
            except ServiceError as error:  # the next reader names the experiment again
                _log.warning("summaries of %s are not stored: %s", grant.experiment_id, error)
            except Exception:  # noqa: BLE001 - else the thread ends, and no more are stored
                _log.exception("summaries of experiment %s failed", grant.experiment_id)

    def _next(self) -> ReadGrant | None:
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._is_stopping)
            if self._is_stopping:
                return None
            grant = next(iter(self._queue))
            del self._queue[grant]
            return grant
