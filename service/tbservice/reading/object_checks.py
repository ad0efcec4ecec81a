"""Checks that the objects which an experiment's points refer to are in the object store.

A row in PostgreSQL says that an object was put, not that it is still there. A page of a check asks the object store for
the objects' sizes, and reads a byte of each part of large objects and of a few others, since a store may list what it
cannot read any more; a deep check reads all bytes and compares their SHA-256.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.pagination import decode_digest_token, encode_digest_token
from tbservice.store import blobs, object_references, time_series
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.types import Blob, ReadGrant, Selection, Series

_CHUNK_OBJECTS: Final = 1_000
"""Objects that are checked between two looks at the clock: as many as S3 lists at a time."""

_CONCURRENT_CALLS_MAX: Final = 8

_CONCURRENT_READS_MAX: Final = 4
"""Objects whose bytes are read at a time; of each, a chunk is in memory."""

_SAMPLE_OBJECTS: Final = 2
"""Objects of a chunk whose last byte is read. When none of them can be read, the chunk counts as unreadable."""

_LISTED_MIN: Final = 50
"""Objects of ours among the 1,000 that S3 lists at a time, below which it is quicker to ask for each."""

_DEEP_CHUNK_BYTES: Final = 64 * limits.MIB
"""Bytes of objects that a deep check reads between two looks at the clock, but one object, at least."""


class Problem(StrEnum):
    """What is wrong with an object."""

    MISSING = "missing"
    WRONG_SIZE = "wrong_size"
    UNREADABLE = "unreadable"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Fault:
    """An object that is not what a series refers to; `size` in bytes is what it should have, 0 when not known."""

    series: Series
    first_step: int
    points: int
    sha256: bytes
    size: int
    problem: Problem


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Objects that were checked, their bytes, what is wrong; `next_page_token` is None at the end."""

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
    """Check the objects that the selected series refer to, each once, in the order of their SHA-256s.

    A page has at most `limit` objects, or as many as `DIGEST_PAGE_SECONDS` allow, and ends early with
    `OBJECT_FAULTS_PAGE_ITEMS_MAX` faults. No connection to PostgreSQL is held while the object store is asked. Raises
    MalformedRequest for an `after` that is none, Unavailable when the object store is away.
    """
    deadline = time.monotonic() + limits.DIGEST_PAGE_SECONDS
    with database.snapshot(grant.workspace_id) as db:
        series = _list_referring_series(db, grant, selection)
        digests = object_references.list_digests(
            db, grant.experiment_id, list(series), decode_digest_token(after), limit + 1
        )
        known = blobs.find_all(db, grant.workspace_id, digests[:limit])

    problems: dict[bytes, Problem] = {}
    checked = 0
    for chunk in _chunks(digests[:limit], known, is_deep=is_deep):
        found, count = _check_chunk(objects, chunk, known, deadline if is_deep else None)
        problems |= found
        checked += count
        if (
            count < len(chunk)
            or time.monotonic() > deadline
            or len(problems) >= limits.OBJECT_FAULTS_PAGE_ITEMS_MAX
        ):
            break

    size = sum(known[digest].size for digest in digests[:checked] if digest in known)
    next_page_token = encode_digest_token(digests[checked - 1]) if checked < len(digests) else None
    return ObjectPage(
        checked, size, _list_faults(database, grant, series, known, problems), next_page_token
    )


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


def _chunks(
    digests: Sequence[bytes], known: Mapping[bytes, Blob], *, is_deep: bool
) -> Iterator[list[bytes]]:
    chunk: list[bytes] = []
    size = 0
    for digest in digests:
        size += known[digest].size if digest in known else 0
        chunk.append(digest)
        if len(chunk) == _CHUNK_OBJECTS or (is_deep and size >= _DEEP_CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _check_chunk(
    objects: ObjectStore,
    chunk: Sequence[bytes],
    known: Mapping[bytes, Blob],
    deep_until: float | None,
) -> tuple[dict[bytes, Problem], int]:
    """Return what is wrong with which of these objects, in the order of their SHA-256s, and how many were checked.

    All of them are, unless a deep check has come to `deep_until` (of `time.monotonic`): an object that the store fails
    to read may take many seconds. Without it, the check is not deep.
    """
    wanted = {digest: known[digest] for digest in chunk if digest in known}
    sizes = _find_sizes(objects, [blob.object_key for blob in wanted.values()])
    problems = {digest: Problem.MISSING for digest in chunk if digest not in known}
    present: list[bytes] = []
    for digest, blob in wanted.items():
        size = sizes.get(blob.object_key)
        if size == blob.size:
            present.append(digest)
        else:
            problems[digest] = Problem.MISSING if size is None else Problem.WRONG_SIZE

    with ThreadPoolExecutor(_CONCURRENT_READS_MAX) as pool:
        sample = present[:_SAMPLE_OBJECTS]
        read = dict(
            zip(
                sample,
                pool.map(lambda digest: _read_end(objects, wanted[digest]), sample),
                strict=True,
            )
        )
        if sample and all(problem is Problem.UNREADABLE for problem in read.values()):
            return problems | dict.fromkeys(present, Problem.UNREADABLE), len(chunk)
        if deep_until is None:
            joined = [digest for digest in present if wanted[digest].size > limits.BLOB_PART_BYTES]
            read |= zip(
                joined,
                pool.map(lambda digest: _read_part_ends(objects, wanted[digest]), joined),
                strict=True,
            )
        else:
            read = {}
            while len(read) < len(present) and (not read or time.monotonic() < deep_until):
                group = present[len(read) : len(read) + _CONCURRENT_READS_MAX]
                read |= zip(
                    group,
                    pool.map(lambda digest: _read_all(objects, wanted[digest]), group),
                    strict=True,
                )
    problems |= {digest: problem for digest, problem in read.items() if problem is not None}
    if deep_until is None or len(read) == len(present):
        return problems, len(chunk)
    count = chunk.index(present[len(read)])
    return {digest: problems[digest] for digest in chunk[:count] if digest in problems}, count


def _find_sizes(objects: ObjectStore, keys: Sequence[str]) -> dict[str, int]:
    """Return the sizes in bytes of those of the objects that are there; the keys are in order, of one workspace.

    Lists the bucket from key to key while enough of the objects listed are ours: that is ten times as fast as to ask
    for each. The others are asked for, those among them that were not listed: a list may be behind.
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
    rest = [key for key in keys if key not in sizes]
    with ThreadPoolExecutor(_CONCURRENT_CALLS_MAX) as pool:
        found = zip(rest, pool.map(objects.find_size, rest), strict=True)
        return sizes | {key: size for key, size in found if size is not None}


def _read_part_ends(objects: ObjectStore, blob: Blob) -> Problem | None:
    """Read the last byte of each part of an object that was put in parts: any of them may have been lost."""
    ends = [*range(limits.BLOB_PART_BYTES, blob.size, limits.BLOB_PART_BYTES), blob.size]
    return next(
        (problem for end in ends if (problem := _read_end(objects, blob, end)) is not None), None
    )


def _read_end(objects: ObjectStore, blob: Blob, end: int | None = None) -> Problem | None:
    """Read the byte before `end`, by default an object's last."""
    end = blob.size if end is None else end
    try:
        for _ in objects.read(blob.object_key, max(0, end - 1), end):
            pass
    except ObjectMissing:  # deleted since it was listed
        return Problem.MISSING
    except ObjectUnreadable:
        return Problem.UNREADABLE
    return None


def _read_all(objects: ObjectStore, blob: Blob) -> Problem | None:
    """Read an object and compare its SHA-256; a chunk of its bytes is held at a time."""
    digest = hashlib.sha256()
    try:
        for piece in objects.read(blob.object_key, 0, blob.size):
            digest.update(piece)
    except ObjectMissing:
        return Problem.MISSING
    except ObjectUnreadable:
        return Problem.UNREADABLE
    return None if digest.hexdigest() == blob.sha256 else Problem.DAMAGED


def _list_faults(
    database: Database,
    grant: ReadGrant,
    series: Mapping[int, Series],
    known: Mapping[bytes, Blob],
    problems: Mapping[bytes, Problem],
) -> list[Fault]:
    if not problems:
        return []
    with database.snapshot(grant.workspace_id) as db:
        referring = object_references.list_referring_series(
            db, grant.experiment_id, list(series), list(problems)
        )
    return [
        Fault(
            series[one.series_id],
            one.first_step,
            one.points,
            one.sha256,
            known[one.sha256].size if one.sha256 in known else 0,
            problems[one.sha256],
        )
        for one in referring
    ]
