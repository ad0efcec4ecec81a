"""Delete objects that nothing refers to, while the service runs: of deleted data, refused batches.

The protocol (decision 46; `tests/unit/test_sweep_model.py` tries all interleavings). It keeps one
invariant: whatever a point refers to has a row in `blobs`, and the object that the row names.

1. Condemn: mark the rows of blobs that nothing seems to refer to. The statement waits for
   transactions that hold a row (`blobs.hold`).
2. Look: read all references. A transaction that held a row before the mark has ended by now. One
   that holds it later takes the mark away, as it stores the reference.
3. Delete the rows that still have this sweep's mark and that nothing refers to, and commit.
4. Delete their objects. No row names these keys, and none ever will: a key is written once, by an
   upload whose row (`blob_uploads`) is deleted in the transaction that records the key.

An object without a row, and without such an upload, is deleted too: left by a crash in step 4, or
by an upload that ended. No step depends on a clock, or on another sweep being absent.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from tbservice.db.database import Database
from tbservice.ingest.tables import blob_uploads
from tbservice.integrity.tables import unused_blobs
from tbservice.objects.object_store import ListedObject, ObjectStore
from tbservice.objects.tables import blobs, object_references
from tbservice.objects.tables.blobs import StoredBlob
from tbservice.throttle import Throttle
from tbservice.types.identifiers import WorkspaceId

SWEEP_PAGE_ITEMS: Final = 50_000
"""Blobs (items) for which all references of a workspace are read at a time, twice at most."""

_CHUNK_ITEMS: Final = 1_000
"""Rows of one transaction, and objects of one look."""

_DAY_SECONDS: Final = 24 * 3600
_MARK_BITS: Final = 63

_Item = TypeVar("_Item")


class Postponed(Exception):
    """A backup runs, whose objects must not be deleted. The sweep continues after it."""


@dataclass(slots=True)
class Swept:
    """Result of a sweep, or of a dry run: blobs with their rows, and objects that no row names."""

    blobs: int = 0
    blob_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0

    @property
    def objects(self) -> int:
        """Objects of both kinds."""
        return self.blobs + self.orphans

    @property
    def size(self) -> int:
        """Their bytes."""
        return self.blob_bytes + self.orphan_bytes


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep of one workspace after the other. Two at once are safe.

    Args:
        database: The database; reads are at the primary.
        objects: The bucket.
        days: Age from which objects are looked at: younger ones may be of an upload in progress.
        deletes: Whether to delete, or only to count.
        throttle: Lets so many objects pass, before each deletion.
        pause: Called after each read of an experiment's references, with the seconds that it took,
            and with 0 before each deletion. May raise what ends the sweep.
    """

    database: Database
    objects: ObjectStore
    days: float
    deletes: bool
    throttle: Throttle = field(default_factory=lambda: Throttle(None))
    pause: Callable[[float], None] = lambda _seconds: None

    def run(self, workspace_id: WorkspaceId, swept: Swept, after: bytes = b"") -> Iterator[bytes]:
        """Sweep a workspace; yield the last SHA-256 of each page, and b"" at the end.

        Args:
            workspace_id: The workspace.
            swept: What is found is added to it.
            after: Where an interrupted sweep was.

        Raises:
            Postponed: A backup runs. Marks remain, and mean nothing to the next sweep.
            Unavailable: PostgreSQL or S3 is.
        """
        is_last = False
        while not is_last:
            with self.database.transaction(workspace_id) as db:
                page = unused_blobs.list_old_blobs(
                    db, workspace_id, after, self.days, SWEEP_PAGE_ITEMS
                )
            is_last = len(page) < SWEEP_PAGE_ITEMS
            self._sweep_page(workspace_id, page, swept)
            if is_last:
                self._sweep_orphans(workspace_id, swept)
            after = b"" if is_last else page[-1].sha256
            yield after

    def _sweep_page(
        self, workspace_id: WorkspaceId, page: Sequence[StoredBlob], swept: Swept
    ) -> None:
        unused = self._select_unused(workspace_id, page)
        if not self.deletes:
            swept.blobs += len(unused)
            swept.blob_bytes += sum(blob.size for blob in unused)
        elif unused:
            self._delete_unused(workspace_id, unused, swept)

    def _select_unused(
        self, workspace_id: WorkspaceId, page: Sequence[StoredBlob]
    ) -> list[StoredBlob]:
        """Return the blobs that no experiment refers to, as of a moment during this call."""
        unused = {blob.sha256 for blob in page}
        experiments = []
        if unused:
            with self.database.transaction(workspace_id) as db:
                experiments = unused_blobs.list_experiments(db, workspace_id)
        for experiment_id in experiments:
            if not unused:
                break
            begin = time.perf_counter()
            with self.database.transaction(workspace_id) as db:
                unused.difference_update(
                    unused_blobs.list_references(db, experiment_id, min(unused), max(unused))
                )
            self.pause(time.perf_counter() - begin)
        return [blob for blob in page if blob.sha256 in unused]

    def _delete_unused(
        self, workspace_id: WorkspaceId, unused: Sequence[StoredBlob], swept: Swept
    ) -> None:
        mark = secrets.randbits(_MARK_BITS)
        for chunk in _chunks(unused):
            with self.database.transaction(workspace_id) as db:
                unused_blobs.condemn(db, workspace_id, [blob.sha256 for blob in chunk], mark)
        # Only now: what was referred to between the first look and the mark is seen by this one.
        still_unused = self._select_unused(workspace_id, unused)
        for chunk in _chunks(still_unused):
            digests = [blob.sha256 for blob in chunk]
            with self.database.transaction(workspace_id) as db:
                # Until the commit: a backup that begins later does not see the rows.
                if not object_references.try_lock_deletion(db):
                    raise Postponed
                deleted = unused_blobs.delete_condemned(db, workspace_id, digests, mark)
            for blob in deleted:
                self._delete(blobs.object_key(workspace_id, blob.sha256, blob.object_suffix))
                swept.blobs += 1
                swept.blob_bytes += blob.size

    def _sweep_orphans(self, workspace_id: WorkspaceId, swept: Swept) -> None:
        """Delete old objects that neither a blob nor an unfinished upload names."""
        # By the clock of this machine: the age is in days, and S3 has its own clock anyway.
        written_before = time.time() - self.days * _DAY_SECONDS
        listing = self.objects.list_objects(f"{workspace_id}/")
        for chunk in _chunks(listing):
            old = [listed for listed in chunk if listed.modified_at <= written_before]
            for listed in self._select_orphans(workspace_id, old):
                if self.deletes:
                    self._delete(listed.key)
                swept.orphans += 1
                swept.orphan_bytes += listed.size

    def _select_orphans(
        self, workspace_id: WorkspaceId, listed: Sequence[ListedObject]
    ) -> Iterable[ListedObject]:
        """Return the listed objects whose keys no row names, nor ever will.

        The order matters: an object is there before its upload ends, and an upload ends in the
        transaction that records its keys.
        """
        if not listed:
            return []
        with self.database.transaction(workspace_id) as db:
            unfinished = blob_uploads.list_suffixes(db, workspace_id)
            digests = {digest for each in listed if (digest := blobs.digest_of(each.key))}
            named = {each.object_key for each in blobs.find_all(db, workspace_id, digests).values()}
        return [
            each
            for each in listed
            if each.key not in named and blobs.suffix_of(each.key) not in unfinished
        ]

    def _delete(self, key: str) -> None:
        self.pause(0)
        self.throttle.spend(1)
        self.objects.delete(key)


def _chunks(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of `_CHUNK_ITEMS`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, _CHUNK_ITEMS)):
        yield chunk
