"""The background thread that deletes objects that nothing refers to, of all workspaces."""

from __future__ import annotations

import logging
import threading
from typing import Final

from tbservice import limits, metrics
from tbservice.audit.receipts import record_sweep
from tbservice.auth.tables import workspaces
from tbservice.db.clock import read_now
from tbservice.db.database import Database
from tbservice.errors import ServiceError, StartupError
from tbservice.ingest.blob_uploads import delete_stale_uploads
from tbservice.integrity.sweep import Postponed, Sweep, Swept
from tbservice.integrity.tables import unused_blobs
from tbservice.objects.object_store import ObjectStore
from tbservice.throttle import Progress, Throttle
from tbservice.types.identifiers import WorkspaceId

SWEEP_LOOK_SECONDS: Final = 600.0
"""Seconds after which a worker looks again for workspaces whose sweep is due."""

_PAUSE_SECONDS_MAX: Final = 5.0
"""After a read of references, the thread rests for as long as it took, at most these seconds."""

_UPDATE_FIRST: Final = (
    "objects can be deleted once no program of an older release uses the database: run "
    "'tbservice migrate --sweep-objects' then, once"
)

_log: Final = logging.getLogger(__name__)


class Sweeper:
    """Sweeps each workspace every so many hours, and continues what another process began.

    Each worker has one, and one of them at a time sweeps, of all hosts. It may be killed or
    suspended at any point.

    Args:
        database: The database.
        objects: The bucket.
        hours: Hours from the end of a workspace's sweep to the next; 0 for no sweeps.
        days: See `Sweep`.
        objects_per_second: Objects that are deleted in a second at most.
    """

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        hours: float,
        days: float,
        objects_per_second: float,
    ) -> None:
        self._database = database
        self._objects = objects
        self._hours = hours
        self._sweep = Sweep(
            database,
            objects,
            days,
            deletes=True,
            throttle=Throttle(objects_per_second),
            pause=self._pause,
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Start the thread, unless there are to be no sweeps."""
        if self._hours > 0:
            self._thread.start()

    def stop(self) -> None:
        """End the thread after its present statement, and wait for it a few seconds."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(limits.COMPACTION_STOP_SECONDS_MAX)

    def sweep_due(self) -> Swept:
        """Sweep the workspaces whose sweep is due; none while another process sweeps.

        Nor before the database requires it of every program. Raises Unavailable.
        """
        total = Swept()
        with self._database.transaction() as lock:
            workspace_ids = [workspace_id for workspace_id, _ in workspaces.list_all(lock)]
            if not unused_blobs.may_delete(lock) or not unused_blobs.try_lock(lock):
                return total
            delete_stale_uploads(self._database, self._objects)
            try:
                for workspace_id in workspace_ids:
                    self._sweep_if_due(workspace_id, total)
                metrics.observe_sweep_end()
            except Postponed:
                _log.info("a backup runs: objects are deleted after it")
            except _Stopped:
                pass  # the next process continues
        return total

    def _sweep_if_due(self, workspace_id: WorkspaceId, total: Swept) -> None:
        with self._database.transaction(workspace_id) as db:
            state = unused_blobs.find_state(db, workspace_id, self._hours)
        if state.is_due:
            _sweep_workspace(self._sweep, workspace_id, state.after, total)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(min(seconds, _PAUSE_SECONDS_MAX)):
            raise _Stopped

    def _run(self) -> None:
        while not self._stopping.wait(min(SWEEP_LOOK_SECONDS, self._hours * 3600)):
            try:
                self.sweep_due()
            except ServiceError as error:  # no database, or no object store: what is unused stays
                _log.warning("sweeping objects stopped, and continues later: %s", error)
            except Exception:  # noqa: BLE001 - else the thread ends, and nothing more is deleted
                _log.exception("sweeping objects failed")


class _Stopped(Exception):
    """The process ends."""


def sweep_now(
    database: Database, objects: ObjectStore, days: float, progress: Progress, *, deletes: bool
) -> Swept:
    """Delete what is older than `days` and not referred to, or with `deletes` false count it.

    At any time, also beside other sweeps. Deleted experiments that can be restored count as
    references, and so do points that are still to be erased.

    Raises:
        StartupError: Objects are to be deleted, and programs of an older release may use the
            database; or a backup runs.
        Unavailable: PostgreSQL or S3 is.
    """
    total = Swept()
    sweep = Sweep(
        database,
        objects,
        days,
        deletes,
        pause=lambda _seconds: progress.report(lambda: _describe(total)),
    )
    with database.transaction() as db:
        workspace_ids = [workspace_id for workspace_id, _ in workspaces.list_all(db)]
        if deletes and not unused_blobs.may_delete(db):
            raise StartupError(_UPDATE_FIRST)
    try:
        for workspace_id in workspace_ids:
            _sweep_workspace(sweep, workspace_id, b"", total)
    except Postponed:
        raise StartupError(
            "a backup runs, whose objects must stay: run the same command again after it "
            f"({_describe(total)} were deleted)"
        ) from None
    return total


def _sweep_workspace(sweep: Sweep, workspace_id: WorkspaceId, after: bytes, total: Swept) -> None:
    """Sweep a workspace, and note after each page where it is, and what was deleted."""
    start = noted = total.objects, total.size
    with sweep.database.transaction(workspace_id) as db:
        began_at = read_now(db)

    def note(after: bytes, *, has_ended: bool) -> None:
        nonlocal noted
        objects, size = total.objects - noted[0], total.size - noted[1]
        noted = total.objects, total.size
        if sweep.deletes:
            metrics.observe_sweep(objects, size)
            with sweep.database.transaction(workspace_id) as db:
                unused_blobs.save_state(db, workspace_id, after, objects, size, has_ended=has_ended)
                if has_ended and is_whole:
                    deleted = total.objects - start[0], total.size - start[1]
                    record_sweep(db, workspace_id, began_at, sweep.days, *deleted)

    place, is_whole = after, not after
    try:
        for last in sweep.run(workspace_id, total, after):
            place = last
            note(place, has_ended=not place)
    except (Postponed, _Stopped):
        note(place, has_ended=False)
        raise


def _describe(total: Swept) -> str:
    return f"{total.objects:,} objects ({total.size:,} bytes) that nothing refers to"
