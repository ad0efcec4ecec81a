"""The series of a batch: made, or locked, and given their points.

A new series is made as it will stand: nothing has to read or change its row again. All that are new are made before
any other is locked, in the order of their ids, and the others are locked then, in the order of their keys, so that of
two batches one waits for the other, never both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import CursorConflict
from tbservice.ingest.decode import BlobSequencePoints, TensorPoints
from tbservice.ingest.series_updates import Addition, Arrival, Arrivals, addition_to, new_addition, parts_of
from tbservice.sample_order import rank_and_key
from tbservice.store import blob_points, runs_tags, sample_slots, scalar_blocks, scalar_tail, series_rows, tensor_points
from tbservice.store.points import Places
from tbservice.store.scalar_blocks import OPEN, NewBlock
from tbservice.store.scalar_format import Points, concatenate
from tbservice.store.scalar_tail import TailRow
from tbservice.store.series_rows import SeriesKey
from tbservice.types import AppendGrant, DataClass
from tbwire import packing

T = TypeVar("T")


@dataclass(slots=True)
class Counts:
    """How many points went in, and how many blobs."""

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0


def take_in(db: Connection, grant: AppendGrant, arrivals: Arrivals) -> list[Addition]:
    """Makes the series that are new, locks the others, and says what each is given; their points are not in yet.

    Raises `metadata_missing` when a series is new and came without metadata.
    """
    new = _make(db, grant, arrivals)
    known = [key for key in arrivals if key not in new]
    states = series_rows.lock(db, grant.experiment_id, known) if known else {}
    _check_known(arrivals, known, states)
    return [*new.values(), *(addition_to(arrivals[key], states[key]) for key in known)]


def _make(db: Connection, grant: AppendGrant, arrivals: Arrivals) -> dict[SeriesKey, Addition]:
    """Create the series that do not exist, except those that another transaction creates meanwhile."""
    described = [key for key, parts in arrivals.items() if _brings_metadata(parts)]
    if not described:
        return {}
    known = series_rows.find(db, grant.experiment_id, described)
    tags = {key: arrivals[key][0].series.tag for key in described if key not in known}
    if not tags:
        return {}
    tag_ids = runs_tags.resolve_tags(db, grant, dict.fromkeys(tags.values()))
    keys = {(key[0], tag_ids[tag]): key for key, tag in tags.items()}
    new = {name: new_addition(name, arrivals[keys[name]]) for name in sorted(keys)}
    states = [addition.state for addition in new.values()]
    made = series_rows.create(db, grant, states, [addition.metadata or b"" for addition in new.values()])
    for name, series_id in made.items():
        new[name].state.series_id = series_id
    return {keys[name]: new[name] for name in made}


def _brings_metadata(parts: Sequence[Arrival]) -> bool:
    return any(part.series.metadata is not None for part in parts)


def _check_known(arrivals: Arrivals, known: Iterable[SeriesKey], states: Collection[SeriesKey]) -> None:
    for key in known:
        if key not in states:
            first = arrivals[key][0]
            detail = f"tag {first.series.tag[:100]!r} is new here: send the segment again with its summary metadata"
            raise _MetadataMissing(detail, segment=first.segment.index, offset=first.segment.start)


class _MetadataMissing(CursorConflict):
    """A series is not known and came without metadata: it was deleted, or the client skipped a beginning."""

    code = "metadata_missing"

    def __init__(self, detail: str, *, segment: int, offset: int) -> None:
        super().__init__(detail, segment=segment, offset=offset, checksum=0)


def count_points(additions: Sequence[Addition]) -> Counts:
    """How many points and blobs the additions are, those that others take the place of included."""
    scalars, tensors, sequences = _by_class(additions)
    blobs = sum(len(blobs) for part in _parts(BlobSequencePoints, sequences) for blobs in part.sequences)
    return Counts(_count(scalars), _count(tensors), blobs)


def insert_values(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    """Inserts tensors and blob sequences, and notes in their series' states how many steps were new."""
    _, tensors, sequences = _by_class(additions)
    if tensors:
        _upsert_tensors(db, grant, tensors)
    if sequences:
        _upsert_blob_sequences(db, grant, sequences)


def insert_scalars(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    """Inserts scalars, and at last writes back the rows of all series that were there; asks for no answers."""
    scalars, tensors, sequences = _by_class(additions)
    if scalars:
        _append_scalars(db, grant, scalars)
    _write_back(db, grant, [*scalars, *tensors, *sequences])


def _by_class(additions: Iterable[Addition]) -> tuple[list[Addition], list[Addition], list[Addition]]:
    by_class: defaultdict[int, list[Addition]] = defaultdict(list)
    for addition in additions:
        if addition.parts:
            by_class[addition.state.data_class].append(addition)
    return by_class[DataClass.SCALAR], by_class[DataClass.TENSOR], by_class[DataClass.BLOB_SEQUENCE]


def _count(additions: Iterable[Addition]) -> int:
    return sum(len(part.steps) for addition in additions for part in addition.parts)


def _parts(kind: type[T], additions: Iterable[Addition]) -> Iterator[T]:
    return chain.from_iterable(parts_of(kind, addition.parts) for addition in additions)


def _write_back(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    known = [addition for addition in additions if not addition.is_new]
    if known:
        series_rows.update(db, grant, [addition.state for addition in known])
    metadata = {addition.series_id: addition.metadata for addition in known if addition.metadata is not None}
    if metadata:
        series_rows.update_metadata(db, grant.experiment_id, metadata)


def _append_scalars(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    rows: list[tuple[int, TailRow]] = []
    blocks: list[NewBlock] = []
    for addition in additions:
        assert addition.kept is not None  # noqa: S101 - as it has parts
        if addition.opens_blocks:
            blocks += _open_blocks(addition.series_id, addition.kept)
        rows += ((addition.series_id, row) for row in addition.tail_rows)
    if rows:
        scalar_tail.append(db, grant, rows)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)


def _open_blocks(series_id: int, points: Points) -> Iterator[NewBlock]:
    """The points as blocks: those they came in, or of about equal length, none too large."""
    if points.blocks:
        bounds = [0, *accumulate(map(packing.count, points.blocks))]
    else:
        count = -(-len(points) // limits.block_points)
        bounds = [len(points) * index // count for index in range(count + 1)]
    for index, (start, end) in enumerate(pairwise(bounds)):
        data = points.blocks[index] if points.blocks else None
        yield NewBlock(series_id, OPEN, points.take(slice(start, end)), data)


def _upsert_tensors(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    tensors = [
        values[index]
        for addition in additions
        for values in [[value for part in parts_of(TensorPoints, addition.parts) for value in part.tensors]]
        for index in _indices(addition)
    ]
    _note_new_counts(tensor_points.upsert(db, grant, _places(db, additions), tensors), additions)


def _upsert_blob_sequences(db: Connection, grant: AppendGrant, additions: Sequence[Addition]) -> None:
    sequences: list[list[bytes]] = []
    content_types: list[str] = []
    for addition in additions:
        parts = parts_of(BlobSequencePoints, addition.parts)
        sent = [blobs for part in parts for blobs in part.sequences]
        logged = [content_type for part in parts for content_type in part.logged_content_types]
        for index in _indices(addition):
            sequences.append([blob.sha256 for blob in sent[index]])
            content_types.append(logged[index])
    new = blob_points.upsert(db, grant, _places(db, additions), sequences, content_types)
    _note_new_counts(new, additions)


def _indices(addition: Addition) -> list[int]:
    assert addition.kept is not None  # noqa: S101 - as it has parts
    indices: list[int] = addition.kept.values.astype(np.int64).tolist()
    return indices


def _places(db: Connection, additions: Sequence[Addition]) -> Places:
    """Of all kept points their series, their place in the order to sample by, step and wall time."""
    kept = [addition.kept for addition in additions if addition.kept is not None]
    points = concatenate(kept)
    ranks, keys = rank_and_key(points.steps, sample_slots.get_ranks(db))
    series_ids = np.repeat([addition.series_id for addition in additions], [len(each) for each in kept])
    return Places(series_ids, ranks, keys, points.steps, points.wall_times)


def _note_new_counts(new: dict[int, int], additions: Sequence[Addition]) -> None:
    for addition in additions:
        if not addition.is_new:  # whose count stands in its row already
            addition.state.count += new.get(addition.series_id, 0)
