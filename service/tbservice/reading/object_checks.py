"""Checks that the object store has the objects that an experiment's points refer to.

A row in PostgreSQL proves that an object was stored, not that it still exists. A check asks the
object store for sizes. As a store may list objects that it can no longer read, it also reads a byte
of each part of large objects and of a few others. A deep check reads all bytes and compares their
SHA-256.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.database import Database
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.grouping import group_by_weight
from tbservice.objects.object_store import ObjectStore
from tbservice.objects.tables import blobs, object_references
from tbservice.pagination import decode_digest_token, encode_digest_token
from tbservice.series.tables import time_series
from tbservice.types.grants import ReadGrant
from tbservice.types.sampling import Selection
from tbservice.types.series import Blob, Series

_CONCURRENT_CALLS_MAX: Final = 8

_LISTED_MIN: Final = 50
"""Requested objects on a list page of 1,000 below which single requests (HEAD) are faster."""


class Problem(StrEnum):
    """Kind of damage of an object."""

    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"


def find_sizes(objects: ObjectStore, keys: Sequence[str]) -> dict[str, int]:
    """Return the sizes in bytes of the existing objects; `keys` are sorted and of one workspace.

    Lists the bucket from key to key while enough of the listed objects are requested ones: ten
    times as fast as a request for each. Objects that were not listed are requested one by one,
    which also covers lists that lag behind writes.
    """
    sizes: dict[str, int] = {}
    start = 0
    while start < len(keys):
        listed = objects.list_sizes(keys[start])
        sizes |= listed
        end = bisect_right(keys, max(listed, default=""), start)
        if end - start < _LISTED_MIN:
            break
        start = end

    unlisted = [key for key in keys if key not in sizes]
    with ThreadPoolExecutor(_CONCURRENT_CALLS_MAX) as pool:
        results = zip(unlisted, pool.map(objects.find_size, unlisted), strict=True)
        return sizes | {key: size for key, size in results if size is not None}


def read_part_ends(objects: ObjectStore, blob: Blob) -> Problem | None:
    """Read the last byte of each part of a multipart object: any part may have been lost."""
    ends = [*range(limits.BLOB_PART_BYTES, blob.size, limits.BLOB_PART_BYTES), blob.size]
    return next(
        (problem for end in ends if (problem := read_end(objects, blob, end)) is not None), None
    )


def read_end(objects: ObjectStore, blob: Blob, end: int | None = None) -> Problem | None:
    """Read the byte before offset `end`, by default the last byte of the object."""
    end = blob.size if end is None else end
    try:
        for _ in objects.read(blob.object_key, max(0, end - 1), end):
            pass
    except ObjectMissing:  # deleted since the listing
        return Problem.MISSING
    except ObjectUnreadable:
        return Problem.UNREADABLE
    return None


def read_all(objects: ObjectStore, blob: Blob) -> Problem | None:
    """Read all bytes of an object, chunk by chunk, and compare the SHA-256."""
    digest = hashlib.sha256()
    try:
        for chunk in objects.read(blob.object_key, 0, blob.size):
            digest.update(chunk)
    except ObjectMissing:
        return Problem.MISSING
    except ObjectUnreadable:
        return Problem.UNREADABLE
    return None if digest.hexdigest() == blob.sha256 else Problem.DAMAGED


OBJECT_FAULTS_PAGE_ITEMS_MAX: Final = 1_000
"""Faulty objects from which a page of an object check ends; it may list up to 1,000 more."""

_CHUNK_OBJECTS: Final = 1_000
"""Objects checked between two checks of the deadline: the page size of S3's ListObjectsV2."""

_CONCURRENT_READS_MAX: Final = 4
"""Objects read at the same time; one chunk of each is in memory."""

_SAMPLE_OBJECTS: Final = 2
"""Objects of a chunk whose last byte is read. If all fail, the chunk counts as unreadable."""

_DEEP_CHUNK_BYTES: Final = 64 * limits.MIB
"""Bytes that a deep check reads between two checks of the deadline; at least one object."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A missing or damaged object; `size` is its expected size in bytes, 0 if unknown."""

    series: Series
    first_step: int
    points: int
    sha256: bytes
    size: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Number and bytes of the objects checked, and faults; the last page has no next page token."""

    objects: int
    bytes: int
    faults: list[Fault]
    next_page_token: str | None


def check_objects(
    database: Database,
    objects: ObjectStore,
    grant: ReadGrant,
    selection: Selection,
    after: str,
    limit: int,
    *,
    is_deep: bool,
) -> ObjectPage:
    """Check a page of the objects that the selected series refer to, each once, ordered by SHA-256.

    No connection to PostgreSQL is in use during calls to the object store.

    Args:
        database: Database that opens the snapshots.
        objects: Object store to check.
        grant: Experiment to check.
        selection: Series to check.
        after: Page token, empty for the first page.
        limit: Maximum number of objects. The page ends early after `DIGEST_PAGE_SECONDS`, or with
            `OBJECT_FAULTS_PAGE_ITEMS_MAX` faults.
        is_deep: Whether to read all bytes and compare SHA-256s.

    Raises:
        MalformedRequest: `after` is not a page token.
        Unavailable: The object store is unavailable.
    """
    deadline = time.monotonic() + limits.DIGEST_PAGE_SECONDS
    with database.snapshot(grant) as db:
        series = _list_referring_series(db, grant, selection)
        digests = object_references.list_digests(
            db, grant.experiment_id, list(series), decode_digest_token(after), limit + 1
        )
        known = blobs.find_all(db, grant.workspace_id, digests[:limit])

    problems, checked = _check_until(objects, digests[:limit], known, deadline, is_deep=is_deep)
    size = sum(known[digest].size for digest in digests[:checked] if digest in known)
    next_page_token = encode_digest_token(digests[checked - 1]) if checked < len(digests) else None
    return ObjectPage(
        checked, size, _list_faults(database, grant, series, known, problems), next_page_token
    )


def _check_until(
    objects: ObjectStore,
    digests: Sequence[bytes],
    known: Mapping[bytes, Blob],
    deadline: float,
    *,
    is_deep: bool,
) -> tuple[dict[bytes, Problem], int]:
    """Check objects in order until `deadline` (`time.monotonic`) or the limit of faults.

    Returns the problems by SHA-256, and how many of the objects were checked.
    """
    problems: dict[bytes, Problem] = {}
    checked = 0

    def weigh(digest: bytes) -> int:
        return known[digest].size if is_deep and digest in known else 0

    for chunk in group_by_weight(digests, weigh, _DEEP_CHUNK_BYTES, _CHUNK_OBJECTS):
        chunk_problems, count = _check_chunk(objects, chunk, known, deadline if is_deep else None)
        problems |= chunk_problems
        checked += count
        if (
            count < len(chunk)
            or time.monotonic() > deadline
            or len(problems) >= OBJECT_FAULTS_PAGE_ITEMS_MAX
        ):
            break
    return problems, checked


def _list_referring_series(
    db: Connection, grant: ReadGrant, selection: Selection
) -> dict[int, Series]:
    """Return the selected series whose points may refer to objects, by id."""
    return {
        series.series_id: series
        for data_class in object_references.REFERRING_CLASSES
        for series in time_series.list_series(
            db, grant.experiment_id, replace(selection, data_class=data_class)
        )
    }


def _check_chunk(
    objects: ObjectStore,
    chunk: Sequence[bytes],
    known: Mapping[bytes, Blob],
    deep_until: float | None,
) -> tuple[dict[bytes, Problem], int]:
    """Return the problems of these objects by SHA-256, and how many of the objects were checked.

    All are checked, unless a deep check reaches the time `deep_until` (`time.monotonic`): a failed
    read may take many seconds. With None, the check is not deep.
    """
    expected = {digest: known[digest] for digest in chunk if digest in known}
    problems = {digest: Problem.MISSING for digest in chunk if digest not in known}
    size_problems, present = _check_sizes(objects, expected)
    problems |= size_problems

    with ThreadPoolExecutor(_CONCURRENT_READS_MAX) as pool:

        def read_each(
            digests: Sequence[bytes], read: Callable[[ObjectStore, Blob], Problem | None]
        ) -> dict[bytes, Problem | None]:
            results = pool.map(lambda digest: read(objects, expected[digest]), digests)
            return dict(zip(digests, results, strict=True))

        results = read_each(present[:_SAMPLE_OBJECTS], read_end)
        if results and all(problem is Problem.UNREADABLE for problem in results.values()):
            return problems | dict.fromkeys(present, Problem.UNREADABLE), len(chunk)

        if deep_until is None:
            multipart = [d for d in present if expected[d].size > limits.BLOB_PART_BYTES]
            results |= read_each(multipart, read_part_ends)
        else:
            results = {}
            while len(results) < len(present) and (not results or time.monotonic() < deep_until):
                group = present[len(results) : len(results) + _CONCURRENT_READS_MAX]
                results |= read_each(group, read_all)

    problems |= {digest: problem for digest, problem in results.items() if problem is not None}
    if deep_until is None or len(results) == len(present):
        return problems, len(chunk)
    count = chunk.index(present[len(results)])
    return {digest: problems[digest] for digest in chunk[:count] if digest in problems}, count


def _check_sizes(
    objects: ObjectStore, expected: Mapping[bytes, Blob]
) -> tuple[dict[bytes, Problem], list[bytes]]:
    """Return the problems of missing objects and wrong sizes, and the SHA-256s of all others."""
    sizes = find_sizes(objects, [blob.object_key for blob in expected.values()])
    problems: dict[bytes, Problem] = {}
    present: list[bytes] = []
    for digest, blob in expected.items():
        size = sizes.get(blob.object_key)
        if size == blob.size:
            present.append(digest)
        else:
            problems[digest] = Problem.MISSING if size is None else Problem.WRONG_SIZE
    return problems, present


def _list_faults(
    database: Database,
    grant: ReadGrant,
    series: Mapping[int, Series],
    known: Mapping[bytes, Blob],
    problems: Mapping[bytes, Problem],
) -> list[Fault]:
    if not problems:
        return []
    with database.snapshot(grant) as db:
        references = object_references.list_referring_series(
            db, grant.experiment_id, list(series), list(problems)
        )

    return [
        Fault(
            series[reference.series_id],
            reference.first_step,
            reference.points,
            reference.sha256,
            known[reference.sha256].size if reference.sha256 in known else 0,
            problems[reference.sha256],
        )
        for reference in references
    ]
