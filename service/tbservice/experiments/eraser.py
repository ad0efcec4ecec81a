"""The background thread that deletes experiments that expire, and erases deleted ones.

It also erases deleted workspaces and people, and the points of deleted series; a bounded number of
rows at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.auth.deletion import list_due, lock_due
from tbservice.auth.tables import workspaces
from tbservice.db.database import Database, wait_in_transaction
from tbservice.errors import ServiceError
from tbservice.experiments import deletion, run_deletion
from tbservice.experiments.tables import (
    erased_series,
    experiment_deletion,
    person_rows,
    snapshots,
)
from tbservice.experiments.tables.experiment_deletion import DueExperiment
from tbservice.types.identifiers import ExperimentId, UserId, WorkspaceId
from tbservice.types.suspensions import Suspendable

ERASE_TRANSACTION_ITEMS_MAX: Final = 250
"""Rows (items) of a deleted experiment that one transaction erases.

A few milliseconds of work for PostgreSQL, for which uploads may have to wait.
"""

ERASE_PAUSE_SECONDS: Final = 0.05
"""Seconds between two transactions that erase, at least."""

ERASE_REST: Final = 4
"""Seconds of pause for each second of a transaction that erases.

Erasing takes a fifth of a core at most, and less while the database is busy: each transaction then
takes longer.
"""

ERASE_INTERVAL_SECONDS: Final = 60.0
"""Seconds after which a worker looks again for deleted experiments to erase."""

ERASE_EXPERIMENTS_ITEMS_MAX: Final = 100
"""Experiments (items) that one look finds."""

_log: Final = logging.getLogger(__name__)


class Eraser:
    """Erases the experiments that were deleted long enough ago, in all workspaces.

    Each worker has one, and one of them at a time erases. It may be killed at any point: the next
    one continues.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eraser", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its present transaction, and wait for it a few seconds."""
        self._stopping.set()
        self._thread.join(limits.COMPACTION_STOP_SECONDS_MAX)

    def _run(self) -> None:
        while not self._stopping.wait(ERASE_INTERVAL_SECONDS):
            try:
                erase_due(self._database, self._stopping)
            except ServiceError as error:  # no database: the experiments stay hidden
                _log.warning("erasing deleted experiments stopped: %s", error)
            except Exception:  # noqa: BLE001 - else the thread ends, and nothing more is erased
                _log.exception("erasing deleted experiments failed")


def erase_due(database: Database, stopping: threading.Event) -> int:
    """Erase the experiments that are due, and return how many; delete those that have expired.

    Does nothing while another process does it.

    Holds one transaction, of locks that nobody else waits for, and erases in others. Raises
    Unavailable.
    """
    erased = 0
    with database.transaction() as sweep:
        if not experiment_deletion.try_lock_sweep(sweep):
            return 0
        dues = experiment_deletion.list_due(sweep, ERASE_EXPERIMENTS_ITEMS_MAX)
        wait_in_transaction(sweep)
        for due in dues:
            if due.is_expiring:
                _expire(database, due)
            elif not _erase(database, due, stopping):
                break
            else:
                erased += 1
        else:
            deleted = list_due(sweep, Suspendable.WORKSPACE)
            people = list_due(sweep, Suspendable.PERSON)
            places = erased_series.list_experiments(sweep, ERASE_EXPERIMENTS_ITEMS_MAX)
            wait_in_transaction(sweep)
            if not all(
                _erase_workspace(database, WorkspaceId(int(each)), stopping) for each in deleted
            ):
                return erased
            for each in people:
                _erase_person(database, UserId(each))
            for place in places:
                if not _erase_rows(database, *place, run_deletion.erase_some, stopping):
                    break
    return erased


def _expire(database: Database, due: DueExperiment) -> None:
    with database.transaction(due.workspace_id) as db:
        deletion.expire_experiment(db, due.workspace_id, due.experiment_id)


def _erase(
    database: Database, due: DueExperiment, stopping: threading.Event, *, is_claimed: bool = False
) -> bool:
    """Erase one experiment, its snapshots first, unless it was restored; return False to stop.

    With `is_claimed`, nobody can restore it: its workspace is due.
    """
    with database.transaction(due.workspace_id) as db:
        # Else one that is committed later would lose its row with its source, and keep its points.
        snapshots.wait(db, due.experiment_id)
        erasure = deletion.begin_erasure(db, due.workspace_id, due.experiment_id, is_due=is_claimed)
        if erasure is None:
            return True
        copies = experiment_deletion.list_snapshots(db, due.experiment_id)
    erase_some = partial(deletion.erase_some, erasure=erasure)
    return all(
        _erase_rows(database, due.workspace_id, each, erase_some, stopping)
        for each in [*copies, due.experiment_id]
    )


def _erase_workspace(
    database: Database, workspace_id: WorkspaceId, stopping: threading.Event
) -> bool:
    """Erase some experiments of a workspace, or if none is left the rest; return False to stop.

    The next looks go on: so a large workspace does not keep others waiting.
    """
    with database.transaction(workspace_id) as db:
        if lock_due(db, Suspendable.WORKSPACE, str(workspace_id)) is None:
            return True  # it was restored
        listed = experiment_deletion.list_of_workspace(
            db, workspace_id, ERASE_EXPERIMENTS_ITEMS_MAX
        )
    if listed:
        dues = (DueExperiment(workspace_id, each, is_expiring=False) for each in listed)
        return all(_erase(database, due, stopping, is_claimed=True) for due in dues)

    def erase_rows(db: Connection) -> bool:
        return deletion.erase_workspace(db, workspace_id, ERASE_TRANSACTION_ITEMS_MAX)

    return _repeat(database, workspace_id, erase_rows, stopping)


def _erase_person(database: Database, user_id: UserId) -> None:
    """Erase a person, in short transactions for each workspace and a last one."""
    with database.transaction() as db:
        if lock_due(db, Suspendable.PERSON, user_id) is None:
            return  # they were restored
        workspace_ids = [each for each, _ in workspaces.list_all(db)]
    rows = 0
    for workspace_id in workspace_ids:
        with database.transaction(workspace_id) as db:
            rows += person_rows.delete_of_workspace(db, workspace_id, user_id)
    with database.transaction() as db:
        person_rows.take_name(db, user_id)
    for workspace_id in workspace_ids:
        _index_again(database, workspace_id, user_id)
    with database.transaction() as db:
        deletion.erase_person(db, user_id, rows)


def _index_again(database: Database, workspace_id: WorkspaceId, user_id: UserId) -> None:
    after, is_last = "", False
    while not is_last:
        with database.transaction(workspace_id) as db:
            after = deletion.index_again(
                db, workspace_id, user_id, after, ERASE_EXPERIMENTS_ITEMS_MAX
            )
        is_last = not after


def _erase_rows(
    database: Database,
    workspace_id: WorkspaceId,
    experiment_id: ExperimentId,
    erase_some: Callable[[Connection, WorkspaceId, ExperimentId, int], bool],
    stopping: threading.Event,
) -> bool:
    def erase(db: Connection) -> bool:
        return erase_some(db, workspace_id, experiment_id, ERASE_TRANSACTION_ITEMS_MAX)

    return _repeat(database, workspace_id, erase, stopping)


def _repeat(
    database: Database,
    workspace_id: WorkspaceId,
    erase: Callable[[Connection], bool],
    stopping: threading.Event,
) -> bool:
    """Erase rows in one transaction after the other; return whether all are gone."""
    is_gone = False
    while not is_gone:
        began = time.monotonic()
        with database.transaction(workspace_id) as db:
            is_gone = erase(db)
        pause = max(ERASE_PAUSE_SECONDS, ERASE_REST * (time.monotonic() - began))
        if stopping.wait(pause) and not is_gone:
            return False
    return True
