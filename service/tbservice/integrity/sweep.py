"""Delete objects that nothing refers to: of deleted experiments and runs, and of refused batches.

While no service runs: see `object_sweep.lock`; counting them locks nothing. Rows and objects of a
workspace are deleted in one transaction, objects first. After a crash between the two, the rows
name objects that are gone, and nothing refers to them: the next sweep deletes the rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from tbservice.auth.tables import workspaces
from tbservice.db.database import Database
from tbservice.ingest.tables import blob_uploads
from tbservice.integrity.tables import integrity_scan, object_sweep
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs
from tbservice.throttle import Progress
from tbservice.types.identifiers import WorkspaceId

_ROWS_PER_PAGE: Final = 1_000
_DAY_SECONDS: Final = 24 * 3600


@dataclass(slots=True)
class Swept:
    """Result of a sweep, or of a dry run: blobs with their rows, and objects that no row names."""

    blobs: int = 0
    blob_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


def sweep(
    database: Database, objects: ObjectStore, days: float, progress: Progress, *, deletes: bool
) -> Swept:
    """Delete what is older than `days` and not referred to, or with `deletes` false count it.

    Deleted experiments that can be restored, and points that are still to be erased, count as
    references.

    Raises:
        StartupError: Somebody uses the database, and objects are to be deleted.
        Unavailable: PostgreSQL or S3 is.
    """
    swept = Swept()
    with database.transaction() as db:
        workspace_ids = [workspace_id for workspace_id, _ in workspaces.list_all(db)]
    for workspace_id in workspace_ids:
        # One workspace at a time, so that a sweep that is interrupted has finished some.
        with database.transaction(workspace_id) as db:
            if deletes:
                # Before anything is read: a batch that refers to a blob must not come between.
                object_sweep.lock(db)
            _sweep_blobs(db, objects, workspace_id, days, swept, deletes=deletes)
            _sweep_orphans(db, objects, workspace_id, days, swept, deletes=deletes)
        progress.report(lambda: f"{swept.blobs + swept.orphans:,} objects that nothing refers to")
    return swept


def _sweep_blobs(
    db: Connection,
    objects: ObjectStore,
    workspace_id: WorkspaceId,
    days: float,
    swept: Swept,
    *,
    deletes: bool,
) -> None:
    referenced: set[bytes] = set()
    for experiment in integrity_scan.list_experiments(db, workspace_id):
        referenced.update(object_sweep.list_experiment_digests(db, experiment.experiment_id))

    after, is_last = b"", False
    while not is_last:
        page = object_sweep.list_old_blobs(db, workspace_id, after, days, _ROWS_PER_PAGE)
        is_last = len(page) < _ROWS_PER_PAGE
        after = page[-1].sha256 if page else after
        unused = [blob for blob in page if blob.sha256 not in referenced]
        swept.blobs += len(unused)
        swept.blob_bytes += sum(blob.size for blob in unused)
        if deletes and unused:
            for blob in unused:
                objects.delete(blobs.object_key(workspace_id, blob.sha256, blob.object_suffix))
            object_sweep.delete_blobs(db, workspace_id, [blob.sha256 for blob in unused])


def _sweep_orphans(
    db: Connection,
    objects: ObjectStore,
    workspace_id: WorkspaceId,
    days: float,
    swept: Swept,
    *,
    deletes: bool,
) -> None:
    """Delete old objects that neither a blob nor an unfinished upload names."""
    unfinished = blob_uploads.list_keys(db, workspace_id)
    # By the clock of this machine: the age is in days, and S3 has its own clock anyway.
    written_before = time.time() - days * _DAY_SECONDS
    known: set[str] = set()
    after, is_last = b"", False
    while not is_last:
        page = blobs.list_page(db, workspace_id, after, _ROWS_PER_PAGE)
        is_last = len(page) < _ROWS_PER_PAGE
        after = page[-1].sha256 if page else after
        known |= {blobs.object_key(workspace_id, blob.sha256, blob.object_suffix) for blob in page}
    for listed in objects.list_objects(f"{workspace_id}/"):
        if listed.key in known or listed.key in unfinished or listed.modified_at >= written_before:
            continue
        swept.orphans += 1
        swept.orphan_bytes += listed.size
        if deletes:
            objects.delete(listed.key)
