"""Samples as the parts that formats are made of: each with its series, and with what is known of its blobs.

A sample is held in memory, but what a format makes of it may be many times as large: `in_pieces` cuts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.ingest.blobs import parse_key
from tbservice.reading.full_scan import Part, Sample
from tbservice.store import blobs, time_series, value_scan
from tbservice.types import (
    Blob,
    BlobSequenceSample,
    DataClass,
    Int64s,
    ReadGrant,
    ScalarSample,
    Selection,
    TensorSample,
)

_POINT_BYTES: Final = 24
_BLOB_BYTES: Final = 400
"""Of what is known of a blob, about."""


def parts_of(
    db: Connection,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    samples: Mapping[str, Mapping[str, Sample]],
) -> list[Part]:
    """One part a series. `samples` were made of this selection in the same snapshot."""
    found = time_series.list_series(db, grant.experiment_id, replace(selection, data_class=data_class))
    parts = [Part(series, samples[series.run][series.tag]) for series in found]
    if data_class is not DataClass.BLOB_SEQUENCE:
        return parts
    known = _find_blobs(db, grant, parts)
    return [replace(part, blobs=known) for part in parts]


def size_of(samples: Mapping[str, Mapping[str, Sample]]) -> int:
    """Return the bytes of these samples, about. With more than `piece_bytes` they are not encoded at once."""
    return sum(int(_sizes(sample).sum()) for tags in samples.values() for sample in tags.values())


def in_pieces(parts: Iterable[Part]) -> Iterator[Part]:
    """The same in parts of about `piece_bytes` at most, but one point at least."""
    for part in parts:
        sizes = _sizes(part.sample)
        pieces = (np.cumsum(sizes) - sizes) // limits.piece_bytes
        bounds = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(sizes)]
        for start, end in pairwise(bounds):
            sample = _cut(part.sample, slice(start, end))
            yield replace(part, sample=sample, is_first=start == 0, is_last=end == len(sizes))


def _sizes(sample: Sample) -> Int64s:
    """Bytes of each point, about."""
    sizes = np.full(len(sample.steps), _POINT_BYTES, np.int64)
    match sample:
        case TensorSample():
            sizes += np.array([value.size + len(value.histogram or b"") for value in sample.tensors], np.int64)
        case BlobSequenceSample():
            sizes += _BLOB_BYTES * np.array([len(keys) for keys in sample.sequences], np.int64)
            sizes += np.array([len(logged.encode()) for logged in sample.logged_content_types], np.int64)
    return sizes


def _cut(sample: Sample, chosen: slice) -> Sample:
    """These points of the sample; of the same `total`."""
    steps, wall_times = sample.steps[chosen], sample.wall_times[chosen]
    match sample:
        case ScalarSample():
            return replace(sample, steps=steps, wall_times=wall_times, values=sample.values[chosen])
        case TensorSample():
            return replace(sample, steps=steps, wall_times=wall_times, tensors=sample.tensors[chosen])
        case BlobSequenceSample():
            sequences, content_types = sample.sequences[chosen], sample.logged_content_types[chosen]
            return BlobSequenceSample(steps, wall_times, sequences, content_types, sample.total)


def _find_blobs(db: Connection, grant: ReadGrant, parts: Iterable[Part]) -> dict[str, Blob]:
    """The blobs of these parts, by key."""
    samples = (part.sample for part in parts)
    sequences = (keys for sample in samples if isinstance(sample, BlobSequenceSample) for keys in sample.sequences)
    places = {key: parse_key(key)[1:4] for keys in sequences for key in keys}
    points = {(series_id, step) for series_id, step, _ in places.values()}
    digests = value_scan.get_digests(db, grant.experiment_id, sorted(points))
    by_key = {key: digests[series_id, step][index] for key, (series_id, step, index) in places.items()}
    known = blobs.find_all(db, grant.workspace_id, set(by_key.values()))
    return {key: known[digest] for key, digest in by_key.items()}
