"""All points of the selected series, in parts, for as long as it takes to send them.

A slow client must not hold a connection, so the parts that fit into memory are read in a snapshot of their own, which
is closed before any of them is given. Hence the rule: a series is given as it stood when it was read, and a series too
long for one part, each part as it stood then; nothing is given twice, and what was there when its part was read is not
left out. Series that came after the beginning are not given, those that were deleted meanwhile are left out. When the
experiment itself is, NotFound ends the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import ObjectMissing, ObjectUnreadable
from tbservice.experiments.lifecycle import get_experiment
from tbservice.reading import tensor_objects
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.reading.point_samples import make_blob_sequence_sample, make_tensor_sample
from tbservice.scalars.scan import read_scalar_chunks
from tbservice.store import blobs, time_series, value_scan
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.store.value_scan import BlobRow, TensorRow
from tbservice.types import (
    ALL_STEPS,
    Blob,
    BlobSequenceSample,
    DataClass,
    ReadGrant,
    ScalarSample,
    Selection,
    Series,
    StepRange,
    TensorSample,
)
from tbwire.digests import Records

_SERIES_PER_READ: Final = 4_000
"""Series of one query, at most."""

_Row = TypeVar("_Row", TensorRow, BlobRow)

Sample = ScalarSample | TensorSample | BlobSequenceSample


@dataclass(frozen=True, slots=True)
class SeriesChunk:
    """Points of a series in step order, one a step; `is_first` and `is_last` of the series' parts.

    The sample's total is of the whole series; where one part does not tell it, as it was listed.
    `blobs` has those of a blob sequence series' points, by SHA-256.
    """

    series: Series
    sample: Sample
    is_first: bool = True
    is_last: bool = True
    blobs: Mapping[bytes, Blob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LostPoint:
    """A point that was left out; `error` says why its tensor cannot be loaded."""

    series: Series
    step: int
    error: ObjectMissing | ObjectUnreadable


@dataclass(frozen=True, slots=True)
class _SeriesRead:
    """What a read found of a series; not `is_complete` where the read ended before the series may have."""

    series: Series
    sample: Sample
    is_complete: bool
    blobs: Mapping[bytes, Blob] = field(default_factory=dict)


def stream_all(
    database: Database,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    steps: StepRange = ALL_STEPS,
    indices: slice = ALL_BLOBS,
) -> Iterator[SeriesChunk]:
    """All points of the selected series in the range of steps: by run, in the order in which the runs came.

    Of blob sequences, the blobs at `indices`. Which series there are is found out in the call. A series without points
    in the range comes as one empty part. Tensors that are objects are still to be loaded (`load_tensors`).
    """
    with database.snapshot(grant.workspace_id) as db:
        series_list = time_series.list_series(
            db, grant.experiment_id, replace(selection, data_class=data_class)
        )
    series_list.sort(key=lambda series: (series.run_id, series.series_id))
    return _stream_chunks(database, grant, series_list, steps, indices)


def load_tensors(objects: ObjectStore, chunks: Iterable[SeriesChunk]) -> Iterator[SeriesChunk]:
    """Yield the same parts with the bytes of every tensor, each fetched when it is asked for.

    Raises as `tensor_objects.load` does; what cannot be loaded is named.
    """
    for chunk in chunks:
        try:
            sample = tensor_objects.load_sample(objects, chunk.sample)
        except (ObjectMissing, ObjectUnreadable) as error:
            detail = (
                f"run {chunk.series.run[:100]!r}, tag {chunk.series.tag[:100]!r}: {error.detail}"
            )
            raise type(error)(detail) from error
        yield replace(chunk, sample=sample)


def load_intact_parts(
    objects: ObjectStore, parts: Iterable[SeriesChunk], left_out: Callable[[LostPoint], None]
) -> Iterator[SeriesChunk]:
    """Yield the same parts without the points whose tensor is lost or cannot be read; `left_out` is told of each.

    A part may be empty then. Each object is asked for once, since many may have to be passed over before anything can
    be sent. Raises Unavailable when the object store is away.
    """
    for part in parts:
        if isinstance(part.sample, TensorSample):
            yield replace(part, sample=_load_intact(objects, part.series, part.sample, left_out))
        else:
            yield part


def _load_intact(
    objects: ObjectStore,
    series: Series,
    sample: TensorSample,
    left_out: Callable[[LostPoint], None],
) -> TensorSample:
    places: list[int] = []
    tensors = []
    for place, value in enumerate(sample.tensors):
        try:
            tensors.append(tensor_objects.load(objects, value, is_brief=True))
        except (ObjectMissing, ObjectUnreadable) as error:
            left_out(LostPoint(series, int(sample.steps[place]), error))
        else:
            places.append(place)
    if len(places) == len(sample.tensors):
        return replace(sample, tensors=tensors)
    return replace(
        sample, steps=sample.steps[places], wall_times=sample.wall_times[places], tensors=tensors
    )


def _stream_chunks(
    database: Database,
    grant: ReadGrant,
    series_list: Sequence[Series],
    steps: StepRange,
    indices: slice,
) -> Iterator[SeriesChunk]:
    for group in _group_by_points(series_list):
        waiting, rest = group, steps
        while waiting:
            # A series whose first part was given is read to its end alone: its range is no other's.
            is_begun = rest != steps
            with database.snapshot(grant.workspace_id) as db:
                get_experiment(
                    db, grant
                )  # without it, all that is missing would look deleted, and the rest whole
                read = list(
                    _read_group(db, grant, waiting[:1] if is_begun else waiting, rest, indices)
                )
            for series_read in read:
                if is_begun or not _is_deleted(series_read, steps):
                    sample = series_read.sample
                    if series_read.is_complete and not is_begun:
                        sample = replace(sample, total=len(sample.steps))
                    yield SeriesChunk(
                        series_read.series,
                        sample,
                        not is_begun,
                        series_read.is_complete,
                        series_read.blobs,
                    )
            waiting, rest = _list_remaining(waiting, read, steps)


def _list_remaining(
    waiting: Sequence[Series], read: Sequence[_SeriesRead], steps: StepRange
) -> tuple[Sequence[Series], StepRange]:
    """The series to be read next, and the range of the first one."""
    last = read[-1]
    if last.is_complete:
        return waiting[len(read) :], steps
    return waiting[len(read) - 1 :], StepRange(int(last.sample.steps[-1]) + 1, steps.last)


def _group_by_points(series_list: Sequence[Series]) -> Iterator[Sequence[Series]]:
    """Series next to each other that have about as many points as may be held at once."""
    start = points = 0
    for place, series in enumerate(series_list):
        is_full = (
            points + series.count > limits.SCAN_CHUNK_POINTS or place - start >= _SERIES_PER_READ
        )
        if place > start and is_full:
            yield series_list[start:place]
            start, points = place, 0
        points += series.count
    if start < len(series_list):
        yield series_list[start:]


def _is_deleted(series_read: _SeriesRead, steps: StepRange) -> bool:
    """Whether the series was deleted since it was listed: it cannot have lost its points otherwise."""
    return (
        series_read.is_complete
        and not len(series_read.sample.steps)
        and steps.covers(series_read.series)
    )


def _read_group(
    db: Connection, grant: ReadGrant, group: Sequence[Series], steps: StepRange, indices: slice
) -> Iterator[_SeriesRead]:
    """The series one after the other, until as much was read as may be held at once; at least one."""
    ids = [series.series_id for series in group]

    match group[0].data_class:
        case DataClass.SCALAR:
            pieces = read_scalar_chunks(
                db, grant.experiment_id, ids, steps, limits.SCAN_CHUNK_POINTS
            )
            yield from _read_scalars(pieces, group, steps.last)
        case DataClass.TENSOR:
            tensors = value_scan.stream_tensors(db, grant.experiment_id, ids, steps)
            for series, rows, is_complete in _by_series(tensors, group):
                values = [value_scan.make_tensor_value(row) for row in rows]
                sample = make_tensor_sample(db, grant, rows, values, series.count)
                yield _SeriesRead(series, sample, is_complete)
        case DataClass.BLOB_SEQUENCE:
            sequences = list(
                _by_series(
                    value_scan.stream_blob_sequences(db, grant.experiment_id, ids, steps), group
                )
            )
            digests = {digest for _, rows, _ in sequences for row in rows for digest in row.digests}
            known = blobs.find_all(db, grant.workspace_id, digests)
            for series, blob_rows, is_complete in sequences:
                blobs_of_series = make_blob_sequence_sample(
                    grant.experiment_id, blob_rows, indices, series.count
                )
                yield _SeriesRead(series, blobs_of_series, is_complete, known)


def _read_scalars(
    pieces: Iterable[tuple[int, Records]], group: Sequence[Series], last_step: int
) -> Iterator[_SeriesRead]:
    points = 0
    for series, (_, of_series) in zip(group, groupby(pieces, itemgetter(0)), strict=False):
        taken: list[Records] = []
        for _, records in of_series:
            taken.append(records)
            points += len(records)
            if (
                points > limits.SCAN_CHUNK_POINTS
                and len(records)
                and int(records["step"][-1]) < last_step
            ):
                yield _SeriesRead(series, _scalar_sample(series, taken), is_complete=False)
                return
        yield _SeriesRead(series, _scalar_sample(series, taken), is_complete=True)


def _scalar_sample(series: Series, chunks: Sequence[Records]) -> ScalarSample:
    records = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
    steps, wall_times, values = (
        np.ascontiguousarray(records[name]) for name in ("step", "wall_time", "value")
    )
    return ScalarSample(steps, wall_times, values, series.count)


def _by_series(
    rows: Iterator[_Row], group: Sequence[Series]
) -> Iterator[tuple[Series, list[_Row], bool]]:
    """Each series with its rows, and whether these are all; ends when as many bytes were read as may be held."""
    size = 0
    waiting = next(rows, None)
    for series in group:
        taken: list[_Row] = []
        while waiting is not None and waiting.series_id == series.series_id:
            if size > limits.SCAN_CHUNK_BYTES and taken:
                yield series, taken, False
                return
            taken.append(waiting)
            size += waiting.size
            waiting = next(rows, None)
        yield series, taken, True
        if size > limits.SCAN_CHUNK_BYTES:
            return
    assert waiting is None  # noqa: S101 - the rows come by series in the order of the group
