"""Check the objects of a workspace: each row of `blobs` has its object, with its size.

The service works meanwhile, and rows and objects are no snapshot: whatever looks wrong in the
listings is looked up again, row first, before it counts.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from tbservice.db.database import Database
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.ingest.tables import blob_uploads
from tbservice.integrity.findings import Damage, Findings
from tbservice.objects.object_store import ListedObject, ObjectStore
from tbservice.objects.tables import blobs
from tbservice.throttle import Throttle
from tbservice.types.identifiers import WorkspaceId
from tbservice.types.series import Blob

ORPHAN_SECONDS_MIN: Final = 24 * 3600
"""Seconds after which an object that no row names counts as an orphan: an upload has ended by then.
"""

CHECK_ORPHANS_LISTED_ITEMS_MAX: Final = 1_000
"""Orphans (items) that a check lists by key; it counts the others."""

_ROWS_PER_PAGE: Final = 1_000


class ObjectCheck:
    """Compares rows and objects in pages, both in the order of the SHA-256s."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        throttle: Throttle,
        findings: Findings,
        *,
        reads_content: bool,
    ) -> None:
        """With `reads_content`, every object is read and hashed."""
        self._database = database
        self._objects = objects
        self._throttle = throttle
        self._findings = findings
        self._reads_content = reads_content

    def run(self, workspace_id: WorkspaceId, report: Callable[[], None]) -> Iterator[Damage]:
        """Yield the damage of a workspace's objects; add its orphans to the findings."""
        after, is_last = b"", False
        while not is_last:
            with self._database.snapshot(workspace_id) as db:
                rows = blobs.list_page(db, workspace_id, after, _ROWS_PER_PAGE)
            is_last = len(rows) < _ROWS_PER_PAGE
            listed = self._list_objects(workspace_id, after, b"" if is_last else rows[-1].sha256)
            for row in rows:
                key = blobs.object_key(workspace_id, row.sha256, row.object_suffix)
                found = listed.pop(key, None)
                self._findings.looked.blobs += 1
                self._findings.looked.blob_bytes += row.size
                if found is None or found.size != row.size:
                    yield from self._look_again(workspace_id, row.sha256)
                elif self._reads_content:
                    yield from self._read(workspace_id, row.sha256)
                report()
            self._count_orphans(workspace_id, listed)
            after = rows[-1].sha256 if rows else after

    def _list_objects(
        self, workspace_id: WorkspaceId, after: bytes, last: bytes
    ) -> dict[str, ListedObject]:
        """Return the objects of the SHA-256s in (after, last], by key; `last` empty: to the end."""
        prefix = f"{workspace_id}/"
        # ~ follows every character of a suffix.
        start = prefix + (after.hex() + "~" if after else "")
        end = prefix + last.hex() + "~" if last else ""
        listing = self._objects.list_objects(prefix, start, end)
        return {listed.key: listed for listed in listing}

    def _find(self, workspace_id: WorkspaceId, sha256: bytes) -> Blob | None:
        with self._database.snapshot(workspace_id) as db:
            return blobs.find(db, workspace_id, sha256)

    def _look_again(self, workspace_id: WorkspaceId, sha256: bytes) -> Iterator[Damage]:
        blob = self._find(workspace_id, sha256)
        if blob is None:
            return
        size = self._objects.find_size(blob.object_key)
        if size == blob.size:
            return
        if size is None:
            yield Damage("object_missing", f"{blob.object_key} of {blob.size} bytes", workspace_id)
        else:
            detail = f"{blob.object_key} has {size} bytes, and its row says {blob.size}"
            yield Damage("object_size", detail, workspace_id)

    def _read(self, workspace_id: WorkspaceId, sha256: bytes) -> Iterator[Damage]:
        blob = self._find(workspace_id, sha256)
        if blob is None:
            return
        digest = hashlib.sha256()
        try:
            for chunk in self._objects.read(blob.object_key, 0, blob.size):
                self._throttle.spend(len(chunk))
                digest.update(chunk)
        except ObjectMissing:
            yield from self._look_again(workspace_id, sha256)
        except ObjectUnreadable:
            yield Damage(
                "object_unreadable", f"the object store fails on {blob.object_key}", workspace_id
            )
        else:
            if digest.digest() != sha256:
                detail = f"{blob.object_key} has other bytes than its name says"
                yield Damage("object_content", detail, workspace_id)

    def _count_orphans(self, workspace_id: WorkspaceId, left: dict[str, ListedObject]) -> None:
        """Count old objects that no row names; those of an upload in progress are left out."""
        written_before = time.time() - ORPHAN_SECONDS_MIN
        old = [listed for listed in left.values() if listed.modified_at < written_before]
        if not old:
            return
        with self._database.snapshot(workspace_id) as db:
            unfinished = blob_uploads.list_suffixes(db, workspace_id)
        for listed in old:
            digest = blobs.digest_of(listed.key)
            blob = self._find(workspace_id, digest) if digest else None
            is_named = blob is not None and blob.object_key == listed.key
            if is_named or blobs.suffix_of(listed.key) in unfinished:
                continue
            self._findings.looked.orphans += 1
            self._findings.looked.orphan_bytes += listed.size
            if len(self._findings.orphan_keys) < CHECK_ORPHANS_LISTED_ITEMS_MAX:
                self._findings.orphan_keys.append(listed.key)
