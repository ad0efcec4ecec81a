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
from tbservice.ingest.blobs import blob_key
from tbservice.reading import tensor_objects
from tbservice.reading.catalog import ALL_BLOBS
from tbservice.scalars.scan import read_scalar_pieces
from tbservice.store import blobs, time_series, value_scan
from tbservice.store.objects import ObjectStore
from tbservice.store.pg.database import Database
from tbservice.store.value_scan import BlobRow, TensorRow
from tbservice.types import (
    ALL_STEPS,
    Blob,
    BlobSequenceSample,
    DataClass,
    Float64s,
    Int64s,
    ReadGrant,
    ScalarSample,
    Selection,
    Series,
    StepRange,
    TensorSample,
)
from tbwire.digests import Records

_SERIES_A_READ: Final = 4_000
"""Series of one query, at most."""

_Row = TypeVar("_Row", TensorRow, BlobRow)

Sample = ScalarSample | TensorSample | BlobSequenceSample


@dataclass(frozen=True, slots=True)
class Part:
    """Points of a series in step order, one a step; `is_first` and `is_last` of the series' parts.

    The sample's total is of the whole series; where one part does not tell it, as it was listed.
    `blobs` are those of a blob sequence series' points, by key.
    """

    series: Series
    sample: Sample
    is_first: bool = True
    is_last: bool = True
    blobs: Mapping[str, Blob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LostPoint:
    """A point that was left out; `error` says why its tensor cannot be loaded."""

    series: Series
    step: int
    error: ObjectMissing | ObjectUnreadable


@dataclass(frozen=True, slots=True)
class _Found:
    """What a read found of a series; not `is_whole` where the read ended before the series may have."""

    series: Series
    sample: Sample
    is_whole: bool
    blobs: Mapping[str, Blob] = field(default_factory=dict)


def read_whole(
    database: Database,
    grant: ReadGrant,
    selection: Selection,
    data_class: DataClass,
    steps: StepRange = ALL_STEPS,
    indices: slice = ALL_BLOBS,
) -> Iterator[Part]:
    """All points of the selected series in the range of steps: by run, in the order in which the runs came.

    Of blob sequences, the blobs at `indices`. Which series there are is found out in the call. A series without points
    in the range comes as one empty part. Tensors that are objects are still to be loaded (`load_parts`).
    """
    with database.snapshot(grant.workspace_id) as db:
        found = time_series.list_series(db, grant.experiment_id, replace(selection, data_class=data_class))
    found.sort(key=lambda series: (series.run_id, series.series_id))
    return _parts(database, grant, found, steps, indices)


def load_parts(objects: ObjectStore, parts: Iterable[Part]) -> Iterator[Part]:
    """Yield the same parts with the bytes of every tensor, each fetched when it is asked for.

    Raises as `tensor_objects.load` does; what cannot be loaded is named.
    """
    for part in parts:
        try:
            sample = tensor_objects.load_sample(objects, part.sample)
        except (ObjectMissing, ObjectUnreadable) as error:
            detail = f"run {part.series.run[:100]!r}, tag {part.series.tag[:100]!r}: {error.detail}"
            raise type(error)(detail) from error
        yield replace(part, sample=sample)


def load_intact_parts(
    objects: ObjectStore, parts: Iterable[Part], left_out: Callable[[LostPoint], None]
) -> Iterator[Part]:
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
    objects: ObjectStore, series: Series, sample: TensorSample, left_out: Callable[[LostPoint], None]
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
    return replace(sample, steps=sample.steps[places], wall_times=sample.wall_times[places], tensors=tensors)


def _parts(
    database: Database, grant: ReadGrant, found: Sequence[Series], steps: StepRange, indices: slice
) -> Iterator[Part]:
    for group in _groups(found):
        waiting, rest = group, steps
        while waiting:
            # A series whose first part was given is read to its end alone: its range is no other's.
            is_begun = rest != steps
            with database.snapshot(grant.workspace_id) as db:
                get_experiment(db, grant)  # without it, all that is missing would look deleted, and the rest whole
                read = list(_read(db, grant, waiting[:1] if is_begun else waiting, rest, indices))
            for one in read:
                if is_begun or not _is_gone(one, steps):
                    sample = one.sample
                    if one.is_whole and not is_begun:
                        sample = replace(sample, total=len(sample.steps))
                    yield Part(one.series, sample, not is_begun, one.is_whole, one.blobs)
            waiting, rest = _what_is_left(waiting, read, steps)


def _what_is_left(
    waiting: Sequence[Series], read: Sequence[_Found], steps: StepRange
) -> tuple[Sequence[Series], StepRange]:
    """The series to be read next, and the range of the first one."""
    last = read[-1]
    if last.is_whole:
        return waiting[len(read) :], steps
    return waiting[len(read) - 1 :], StepRange(int(last.sample.steps[-1]) + 1, steps.last)


def _groups(found: Sequence[Series]) -> Iterator[Sequence[Series]]:
    """Series next to each other that have about as many points as may be held at once."""
    start = points = 0
    for place, series in enumerate(found):
        is_full = points + series.count > limits.piece_points or place - start >= _SERIES_A_READ
        if place > start and is_full:
            yield found[start:place]
            start, points = place, 0
        points += series.count
    if start < len(found):
        yield found[start:]


def _is_gone(one: _Found, steps: StepRange) -> bool:
    """Whether the series was deleted since it was listed: it cannot have lost its points otherwise."""
    return one.is_whole and not len(one.sample.steps) and steps.covers(one.series)


def _read(
    db: Connection, grant: ReadGrant, group: Sequence[Series], steps: StepRange, indices: slice
) -> Iterator[_Found]:
    """The series one after the other, until as much was read as may be held at once; at least one."""
    ids = [series.series_id for series in group]
    match group[0].data_class:
        case DataClass.SCALAR:
            pieces = read_scalar_pieces(db, grant.experiment_id, ids, steps, limits.piece_points)
            yield from _found_scalars(pieces, group, steps.last)
        case DataClass.TENSOR:
            tensors = value_scan.stream_tensors(db, grant.experiment_id, ids, steps)
            for series, rows, is_whole in _by_series(tensors, group):
                yield _Found(series, _tensor_sample(db, grant, series, rows), is_whole)
        case DataClass.BLOB_SEQUENCE:
            sequences = list(_by_series(value_scan.stream_blob_sequences(db, grant.experiment_id, ids, steps), group))
            digests = {digest for _, rows, _ in sequences for row in rows for digest in row.digests}
            known = blobs.find_all(db, grant.workspace_id, digests)
            for series, parts, is_whole in sequences:
                yield _found_sequences(grant, series, parts, known, indices, is_whole=is_whole)


def _found_scalars(pieces: Iterable[tuple[int, Records]], group: Sequence[Series], last_step: int) -> Iterator[_Found]:
    points = 0
    for series, (_, of_series) in zip(group, groupby(pieces, itemgetter(0)), strict=False):
        taken: list[Records] = []
        for _, records in of_series:
            taken.append(records)
            points += len(records)
            if points > limits.piece_points and len(records) and int(records["step"][-1]) < last_step:
                yield _Found(series, _scalar_sample(series, taken), is_whole=False)
                return
        yield _Found(series, _scalar_sample(series, taken), is_whole=True)


def _scalar_sample(series: Series, parts: Sequence[Records]) -> ScalarSample:
    records = parts[0] if len(parts) == 1 else np.concatenate(parts)
    steps, wall_times, values = (np.ascontiguousarray(records[name]) for name in ("step", "wall_time", "value"))
    return ScalarSample(steps, wall_times, values, series.count)


def _by_series(rows: Iterator[_Row], group: Sequence[Series]) -> Iterator[tuple[Series, list[_Row], bool]]:
    """Each series with its rows, and whether these are all; ends when as many bytes were read as may be held."""
    size = 0
    waiting = next(rows, None)
    for series in group:
        taken: list[_Row] = []
        while waiting is not None and waiting.series_id == series.series_id:
            if size > limits.piece_bytes and taken:
                yield series, taken, False
                return
            taken.append(waiting)
            size += waiting.size
            waiting = next(rows, None)
        yield series, taken, True
        if size > limits.piece_bytes:
            return
    assert waiting is None  # noqa: S101 - the rows come by series in the order of the group


def _tensor_sample(db: Connection, grant: ReadGrant, series: Series, rows: Sequence[TensorRow]) -> TensorSample:
    values = tensor_objects.locate(db, grant.workspace_id, [value_scan.tensor_value(row) for row in rows])
    return TensorSample(*_steps_and_times(rows), values, series.count)


def _found_sequences(
    grant: ReadGrant,
    series: Series,
    rows: Sequence[BlobRow],
    known: Mapping[bytes, Blob],
    indices: slice,
    *,
    is_whole: bool,
) -> _Found:
    keyed: dict[str, Blob] = {}
    sequences = []
    for row in rows:
        keys = [
            blob_key(grant.experiment_id, series.series_id, row.step, index, digest)
            for index, digest in enumerate(row.digests)
        ]
        keyed.update(zip(keys, (known[digest] for digest in row.digests), strict=True))
        sequences.append(keys[indices])
    content_types = [row.logged_content_type for row in rows]
    sample = BlobSequenceSample(*_steps_and_times(rows), sequences, content_types, series.count)
    return _Found(series, sample, is_whole=is_whole, blobs=keyed)


def _steps_and_times(rows: Sequence[TensorRow] | Sequence[BlobRow]) -> tuple[Int64s, Float64s]:
    return np.array([row.step for row in rows], np.int64), np.array([row.wall_time for row in rows], np.float64)
