"""Samples as series chunks, the input of every response format.

A sample is in memory, but its encoded form may be many times as large: `split_chunks` bounds the
memory of the encoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.full_scan import SeriesChunk
from tbservice.reading.point_samples import find_blobs
from tbservice.samples import BlobSequenceSample, Sample, TensorSample, cut
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Int64s
from tbservice.types.series import Series

_POINT_BYTES: Final = 24
_BLOB_BYTES: Final = 400
"""Approximate size of a blob's key and metadata."""


def make_chunks(
    db: Connection, grant: ReadGrant, samples: Sequence[tuple[Series, Sample]]
) -> list[SeriesChunk]:
    """Return one chunk per series. `samples` must be from the same snapshot."""
    known = find_blobs(db, grant, [sample for _, sample in samples])
    return [SeriesChunk(series, sample, blobs=known) for series, sample in samples]


def estimate_bytes(samples: Iterable[tuple[Series, Sample]]) -> int:
    """Return the approximate size of these samples in bytes.

    Samples above `SCAN_CHUNK_BYTES` are streamed in place of being encoded at once.
    """
    return sum(int(_point_sizes(sample).sum()) for _, sample in samples)


def split_chunks(chunks: Iterable[SeriesChunk]) -> Iterator[SeriesChunk]:
    """Yield the same points in chunks of about `SCAN_CHUNK_BYTES`, but of at least one point."""
    for chunk in chunks:
        sizes = _point_sizes(chunk.sample)
        chunk_indices = (np.cumsum(sizes) - sizes) // limits.SCAN_CHUNK_BYTES
        bounds = [0, *(np.flatnonzero(np.diff(chunk_indices)) + 1).tolist(), len(sizes)]
        for start, end in pairwise(bounds):
            sample = cut(chunk.sample, slice(start, end))
            yield replace(chunk, sample=sample, is_first=start == 0, is_last=end == len(sizes))


def _point_sizes(sample: Sample) -> Int64s:
    """Return the approximate size of each point in bytes."""
    sizes = np.full(len(sample.steps), _POINT_BYTES, np.int64)
    match sample:
        case TensorSample():
            sizes += np.array(
                [value.size + len(value.histogram or b"") for value in sample.tensors], np.int64
            )
        case BlobSequenceSample():
            sizes += _BLOB_BYTES * np.array([len(keys) for keys in sample.sequences], np.int64)
            sizes += np.array(
                [len(logged.encode()) for logged in sample.logged_content_types], np.int64
            )
    return sizes
