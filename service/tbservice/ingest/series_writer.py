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
from tbservice.ingest.batch import BlobSequencePoints, TensorPoints
from tbservice.ingest.series_updates import (
    IncomingBySeries,
    IncomingPoints,
    SeriesUpdate,
    plan_new_series,
    plan_update,
    select_type,
)
from tbservice.sample_order import compute_rank_and_key
from tbservice.store import (
    blob_points,
    runs_tags,
    sample_slots,
    scalar_blocks,
    scalar_tail,
    series_rows,
    tensor_points,
)
from tbservice.store.points import PointKeys
from tbservice.store.scalar_blocks import OPEN, NewBlock
from tbservice.store.scalar_format import ScalarPoints, concatenate
from tbservice.store.scalar_tail import BufferRow
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


def lock_or_create(
    db: Connection, grant: AppendGrant, incoming: IncomingBySeries
) -> list[SeriesUpdate]:
    """Makes the series that are new, locks the others, and says what each is given; their points are not in yet.

    Raises `metadata_missing` when a series is new and came without metadata.
    """
    new = _create_missing(db, grant, incoming)
    known = [key for key in incoming if key not in new]
    states = series_rows.lock(db, grant.experiment_id, known) if known else {}
    _check_all_exist(incoming, known, states)
    return [*new.values(), *(plan_update(incoming[key], states[key]) for key in known)]


def _create_missing(
    db: Connection, grant: AppendGrant, incoming: IncomingBySeries
) -> dict[SeriesKey, SeriesUpdate]:
    """Create the series that do not exist, except those that another transaction creates meanwhile."""
    described = [key for key, parts in incoming.items() if _has_metadata(parts)]
    if not described:
        return {}
    known = series_rows.find(db, grant.experiment_id, described)
    tags = {key: incoming[key][0].series.tag for key in described if key not in known}
    if not tags:
        return {}
    tag_ids = runs_tags.resolve_tags(db, grant, dict.fromkeys(tags.values()))
    keys = {(key[0], tag_ids[tag]): key for key, tag in tags.items()}
    new = {name: plan_new_series(name, incoming[keys[name]]) for name in sorted(keys)}
    states = [update.state for update in new.values()]
    made = series_rows.create(
        db, grant, states, [update.metadata or b"" for update in new.values()]
    )
    for name, series_id in made.items():
        new[name].state.series_id = series_id
    return {keys[name]: new[name] for name in made}


def _has_metadata(parts: Sequence[IncomingPoints]) -> bool:
    return any(part.series.metadata is not None for part in parts)


def _check_all_exist(
    incoming: IncomingBySeries, known: Iterable[SeriesKey], states: Collection[SeriesKey]
) -> None:
    for key in known:
        if key not in states:
            first = incoming[key][0]
            detail = f"tag {first.series.tag[:100]!r} is new here: send the segment again with its summary metadata"
            raise _MetadataMissing(detail, segment=first.segment.index, offset=first.segment.start)


class _MetadataMissing(CursorConflict):
    """A series is not known and came without metadata: it was deleted, or the client skipped a beginning."""

    code = "metadata_missing"

    def __init__(self, detail: str, *, segment: int, offset: int) -> None:
        super().__init__(detail, segment=segment, offset=offset, checksum=0)


def count_points(updates: Sequence[SeriesUpdate]) -> Counts:
    """How many points and blobs the additions are, those that others take the place of included."""
    scalars, tensors, sequences = _group_by_data_class(updates)
    blobs = sum(
        len(blobs)
        for part in _iter_accepted(BlobSequencePoints, sequences)
        for blobs in part.sequences
    )
    return Counts(_count_points(scalars), _count_points(tensors), blobs)


def insert_tensors_and_blobs(
    db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]
) -> None:
    """Inserts tensors and blob sequences, and notes in their series' states how many steps were new."""
    _, tensors, sequences = _group_by_data_class(updates)
    if tensors:
        _upsert_tensors(db, grant, tensors)
    if sequences:
        _upsert_blob_sequences(db, grant, sequences)


def insert_scalars(db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]) -> None:
    """Inserts scalars, and at last writes back the rows of all series that were there; asks for no answers."""
    scalars, tensors, sequences = _group_by_data_class(updates)
    if scalars:
        _append_scalars(db, grant, scalars)
    _update_series_rows(db, grant, [*scalars, *tensors, *sequences])


def _group_by_data_class(
    updates: Iterable[SeriesUpdate],
) -> tuple[list[SeriesUpdate], list[SeriesUpdate], list[SeriesUpdate]]:
    by_class: defaultdict[int, list[SeriesUpdate]] = defaultdict(list)
    for update in updates:
        if update.accepted:
            by_class[update.state.data_class].append(update)
    return by_class[DataClass.SCALAR], by_class[DataClass.TENSOR], by_class[DataClass.BLOB_SEQUENCE]


def _count_points(updates: Iterable[SeriesUpdate]) -> int:
    return sum(len(part.steps) for update in updates for part in update.accepted)


def _iter_accepted(points_type: type[T], updates: Iterable[SeriesUpdate]) -> Iterator[T]:
    return chain.from_iterable(select_type(points_type, update.accepted) for update in updates)


def _update_series_rows(
    db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]
) -> None:
    known = [update for update in updates if not update.is_new]
    if known:
        series_rows.update(db, grant, [update.state for update in known])
    metadata = {
        update.series_id: update.metadata for update in known if update.metadata is not None
    }
    if metadata:
        series_rows.update_metadata(db, grant.experiment_id, metadata)


def _append_scalars(db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]) -> None:
    rows: list[tuple[int, BufferRow]] = []
    blocks: list[NewBlock] = []
    for update in updates:
        assert update.deduplicated is not None  # noqa: S101 - as it has parts
        if update.opens_blocks:
            blocks += _make_open_blocks(update.series_id, update.deduplicated)
        rows += ((update.series_id, row) for row in update.tail_rows)
    if rows:
        scalar_tail.append(db, grant, rows)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)


def _make_open_blocks(series_id: int, points: ScalarPoints) -> Iterator[NewBlock]:
    """The points as blocks: those they came in, or of about equal length, none too large."""
    if points.blocks:
        bounds = [0, *accumulate(map(packing.count, points.blocks))]
    else:
        count = -(-len(points) // limits.BLOCK_POINTS_MAX)
        bounds = [len(points) * index // count for index in range(count + 1)]
    for index, (start, end) in enumerate(pairwise(bounds)):
        data = points.blocks[index] if points.blocks else None
        yield NewBlock(series_id, OPEN, points.select(slice(start, end)), data)


def _upsert_tensors(db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]) -> None:
    tensors = [
        values[index]
        for update in updates
        for values in [
            [value for part in select_type(TensorPoints, update.accepted) for value in part.tensors]
        ]
        for index in _get_value_indices(update)
    ]
    _add_new_step_counts(
        tensor_points.upsert(db, grant, _make_point_keys(db, updates), tensors), updates
    )


def _upsert_blob_sequences(
    db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]
) -> None:
    sequences: list[list[bytes]] = []
    content_types: list[str] = []
    for update in updates:
        parts = select_type(BlobSequencePoints, update.accepted)
        sent = [blobs for part in parts for blobs in part.sequences]
        logged = [content_type for part in parts for content_type in part.logged_content_types]
        for index in _get_value_indices(update):
            sequences.append([blob.sha256 for blob in sent[index]])
            content_types.append(logged[index])
    new = blob_points.upsert(db, grant, _make_point_keys(db, updates), sequences, content_types)
    _add_new_step_counts(new, updates)


def _get_value_indices(update: SeriesUpdate) -> list[int]:
    assert update.deduplicated is not None  # noqa: S101 - as it has parts
    indices: list[int] = update.deduplicated.values.astype(np.int64).tolist()
    return indices


def _make_point_keys(db: Connection, updates: Sequence[SeriesUpdate]) -> PointKeys:
    """Of all kept points their series, their place in the order to sample by, step and wall time."""
    kept = [update.deduplicated for update in updates if update.deduplicated is not None]
    points = concatenate(kept)
    ranks, keys = compute_rank_and_key(points.steps, sample_slots.get_ranks(db))
    series_ids = np.repeat([update.series_id for update in updates], [len(each) for each in kept])
    return PointKeys(series_ids, ranks, keys, points.steps, points.wall_times)


def _add_new_step_counts(new: dict[int, int], updates: Sequence[SeriesUpdate]) -> None:
    for update in updates:
        if not update.is_new:  # whose count stands in its row already
            update.state.count += new.get(update.series_id, 0)
