"""Copy objects by several threads, each read completely and checked before it is written."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import IO, Final, TypeVar

BACKUP_THREADS_ITEMS: Final = 4
"""Objects (items) that a backup or a restore copies at a time."""

T = TypeVar("T")
R = TypeVar("R")

_MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of an object that are kept in memory; a larger one waits in a temporary file."""

_READ_BYTES: Final = 256 * 1024


@contextmanager
def spooled(
    chunks: Iterable[bytes], count: Callable[[int], None]
) -> Iterator[tuple[IO[bytes], str]]:
    """Yield all bytes as a file at its start, and their SHA-256 in hexadecimal.

    `count` is called with the bytes of each chunk.
    """
    digest = hashlib.sha256()
    with tempfile.SpooledTemporaryFile(_MEMORY_BYTES_MAX) as file:
        for chunk in chunks:
            count(len(chunk))
            digest.update(chunk)
            file.write(chunk)
        file.seek(0)
        yield file, digest.hexdigest()


def iter_file(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks."""
    while chunk := file.read(_READ_BYTES):
        yield chunk


def map_threads(work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield the results of `work` by some threads, in order; few items are waiting at a time."""
    with ThreadPoolExecutor(BACKUP_THREADS_ITEMS) as pool:
        remaining = iter(items)
        while group := list(islice(remaining, 16 * BACKUP_THREADS_ITEMS)):
            yield from pool.map(work, group)
