"""Probe objects: find their sizes, and read some of their bytes or all."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import Final

from tbservice import limits
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.objects.object_store import ObjectStore
from tbservice.types.series import Blob

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
