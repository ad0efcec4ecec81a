"""Create or lock the series of a batch, and insert their points.

A new series is inserted with its final values, so that its row is neither read nor updated.
Deadlocks between batches are avoided by a fixed order: all new series are created first, in the
order of run and tag ids; then the others are locked, in the order of their keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.db.arrays import Array
from tbservice.errors import CursorConflict, TooLarge
from tbservice.ingest.batch import SentPoints, SentSeries
from tbservice.ingest.series_updates import (
    IncomingBySeries,
    SeriesUpdate,
    plan_new_series,
    plan_update,
    unites_metadata,
)
from tbservice.sample_order import compute_rank_and_key
from tbservice.series.tables import (
    blob_points,
    runs_tags,
    sample_slots,
    scalar_blocks,
    scalar_tail,
    series_rows,
)
from tbservice.series.tables.points import PointKeys, encode_tensors, upsert_points
from tbservice.series.tables.scalar_blocks import OPEN, NewBlock
from tbservice.series.tables.scalar_format import PackedScalarPoints
from tbservice.series.tables.scalar_tail import BufferRow
from tbservice.series.tables.series_rows import SeriesKey, SeriesRow
from tbservice.types.grants import AppendGrant
from tbwire import packing
from tbwire.points import BlobSequencePoints, DataClass, ScalarPoints, TensorPoints

BATCH_STORED_METADATA_BYTES_MAX: Final = 16 * limits.MIB
"""Bytes of stored metadata of plugin `hparams` read for one WriteBatch, to be united with it."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of points and blobs in a batch, including superseded ones."""

    scalars: int = 0
    tensors: int = 0
    blobs: int = 0


def lock_or_create(
    db: Connection, grant: AppendGrant, incoming: IncomingBySeries
) -> list[SeriesUpdate]:
    """Create the series that are new, lock the others, and plan their updates.

    The only points that it inserts are the inline buffers of new series, which are in their rows.

    Raises:
        CursorConflict: `metadata_missing` if a series is new and came without metadata.
        TooLarge: The batch adds hyperparameters to too many bytes of them.
    """
    new = _create_missing(db, grant, incoming)
    known = [key for key in incoming if key not in new]
    rows = series_rows.lock(db, grant.experiment_id, known) if known else {}
    _check_all_exist(incoming, known, rows)
    stored = _read_metadata_to_unite(db, grant, incoming, rows)
    updates = (
        plan_update(incoming[key], rows[key], stored.get(rows[key].series_id, b"")) for key in known
    )
    return [*new.values(), *updates]


def _read_metadata_to_unite(
    db: Connection,
    grant: AppendGrant,
    incoming: IncomingBySeries,
    rows: Mapping[SeriesKey, SeriesRow],
) -> dict[int, bytes]:
    """Return the serialized metadata of the locked series that need it, by series id."""
    series_ids = [row.series_id for key, row in rows.items() if unites_metadata(incoming[key], row)]
    if not series_ids:
        return {}
    bytes_max = BATCH_STORED_METADATA_BYTES_MAX
    stored = series_rows.read_metadata(db, grant.experiment_id, series_ids, bytes_max)
    # The query left out what does not fit: a short list is the only sign of that.
    if len(stored) < len(series_ids):
        raise TooLarge(
            f"a batch adds hyperparameters to series with at most {bytes_max} bytes of them: "
            "send fewer series at a time"
        )
    return stored


def _create_missing(
    db: Connection, grant: AppendGrant, incoming: IncomingBySeries
) -> dict[SeriesKey, SeriesUpdate]:
    """Create the series that do not exist; another transaction may create some first."""
    # Clients send metadata with a series' first segment only: batches of known series skip the
    # look-up.
    described = [key for key, items in incoming.items() if _has_metadata(items)]
    if not described:
        return {}
    known = series_rows.find(db, grant.experiment_id, described)
    tags = {key: incoming[key][0].tag for key in described if key not in known}
    if not tags:
        return {}

    tag_ids = runs_tags.resolve_tags(db, grant, dict.fromkeys(tags.values()))
    keys = {(key[0], tag_ids[tag]): key for key, tag in tags.items()}
    # Sorted, so that two batches that create the same series cannot wait for each other:
    # https://www.postgresql.org/docs/18/explicit-locking.html#LOCKING-DEADLOCKS
    new = {ids: plan_new_series(ids, incoming[keys[ids]]) for ids in sorted(keys)}
    rows = [update.row for update in new.values()]
    metadata = [update.metadata or b"" for update in new.values()]
    created = series_rows.create(db, grant, rows, metadata)

    for ids, series_id in created.items():
        new[ids].series_id = series_id
    # Series that another transaction created first are locked by the caller, like all known ones.
    return {keys[ids]: new[ids] for ids in created}


def _has_metadata(incoming: Sequence[SentSeries]) -> bool:
    return any(series.metadata is not None for series in incoming)


def _check_all_exist(
    incoming: IncomingBySeries, known: Iterable[SeriesKey], rows: Collection[SeriesKey]
) -> None:
    for key in known:
        if key not in rows:
            first = incoming[key][0]
            detail = (
                f"tag {first.tag[:100]!r} is new in this experiment: "
                "send the segment again with its summary metadata"
            )
            raise _MetadataMissing(detail, segment=first.segment_index, offset=first.segment_start)


class _MetadataMissing(CursorConflict):
    """A series does not exist and came without metadata: it may have been deleted."""

    code = "metadata_missing"

    def __init__(self, detail: str, *, segment: int, offset: int) -> None:
        super().__init__(detail, segment=segment, offset=offset, checksum=0)


def count_points(updates: Iterable[SeriesUpdate]) -> Counts:
    """Return the number of points and blobs of the updates, including superseded ones."""
    counts: Counter[int] = Counter()
    for update in updates:
        for points in update.accepted:
            counts[update.row.data_class] += points.value_count
    return Counts(
        counts[DataClass.SCALAR], counts[DataClass.TENSOR], counts[DataClass.BLOB_SEQUENCE]
    )


def insert_tensors_and_blobs(
    db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]
) -> int:
    """Insert tensors and blob sequences, and add the new steps to the counts of their series.

    Returns by how many bytes the tensors that are stored have grown.
    """
    tensor_bytes = 0
    for data_class in (DataClass.TENSOR, DataClass.BLOB_SEQUENCE):
        group = _of_data_class(updates, data_class)
        if group:
            keys = _make_point_keys(db, group)
            values = encode_values(data_class, [update.deduplicated for update in group])
            added = upsert_points(db, grant, data_class, keys, values)
            _add_new_step_counts(added.new_steps, group)
            tensor_bytes += added.tensor_bytes
    return tensor_bytes


def insert_scalars(db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]) -> None:
    """Insert scalars, then update the rows of all series that existed before; reads no results."""
    scalars = _of_data_class(updates, DataClass.SCALAR)
    if scalars:
        _append_scalars(db, grant, scalars)
    _update_series_rows(db, grant, [update for update in updates if update.accepted])


def _of_data_class(updates: Iterable[SeriesUpdate], data_class: DataClass) -> list[SeriesUpdate]:
    """Return the updates of a data class that add points."""
    return [update for update in updates if update.accepted and update.row.data_class == data_class]


def _update_series_rows(
    db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]
) -> None:
    known = [update for update in updates if not update.is_new]
    if known:
        series_rows.update(db, grant, [(update.before, update.row) for update in known])
    metadata = {
        update.series_id: update.metadata for update in known if update.metadata is not None
    }
    if metadata:
        series_rows.update_metadata(db, grant.experiment_id, metadata)


def _append_scalars(db: Connection, grant: AppendGrant, updates: Sequence[SeriesUpdate]) -> None:
    rows: list[tuple[int, BufferRow]] = []
    blocks: list[NewBlock] = []
    for update in updates:
        assert isinstance(update.deduplicated, ScalarPoints)  # noqa: S101 - of accepted scalars
        if update.opens_blocks:
            blocks += _make_open_blocks(update.series_id, update.deduplicated)
        rows += ((update.series_id, row) for row in update.tail_rows)
    if rows:
        scalar_tail.append(db, grant, rows)
    if blocks:
        scalar_blocks.insert(db, grant, blocks)


def _make_open_blocks(series_id: int, points: ScalarPoints) -> Iterator[NewBlock]:
    """Yield the points as open blocks: as the client packed them, or of about equal length."""
    blocks = points.blocks if isinstance(points, PackedScalarPoints) else ()
    if blocks:
        bounds = [0, *accumulate(map(packing.count, blocks))]
    else:
        # Rounded up. Equal parts: a short last block would be repacked later, not sealed in place.
        count = -(-len(points) // limits.BLOCK_POINTS_MAX)
        bounds = [len(points) * index // count for index in range(count + 1)]
    for index, (start, end) in enumerate(pairwise(bounds)):
        data = blocks[index] if blocks else None
        yield NewBlock(series_id, OPEN, points.select(slice(start, end)), data)


def encode_values(
    data_class: DataClass, points: Iterable[SentPoints | None]
) -> Mapping[str, Array]:
    """Return the values of tensors or blob sequences as columns of their tables."""
    if data_class is DataClass.TENSOR:
        groups = [each.tensors for each in points if isinstance(each, TensorPoints)]
        return encode_tensors([tensor for tensors in groups for tensor in tensors])
    sequences = [each for each in points if isinstance(each, BlobSequencePoints)]
    return blob_points.encode_sequences(
        [[blob.sha256 for blob in blobs] for each in sequences for blobs in each.sequences],
        [kind for each in sequences for kind in each.logged_content_types],
    )


def _make_point_keys(db: Connection, updates: Sequence[SeriesUpdate]) -> PointKeys:
    """Return series, sampling order, step and wall time of all points to insert."""
    columns = [update.deduplicated for update in updates if update.deduplicated is not None]
    steps = np.concatenate([points.steps for points in columns])
    # The primary key begins with the rank: a sample of a series is then a prefix of its index
    # (decision 1).
    ranks, keys = compute_rank_and_key(steps, sample_slots.get_ranks(db))
    series_ids = np.repeat([update.series_id for update in updates], list(map(len, columns)))
    wall_times = np.concatenate([points.wall_times for points in columns])
    return PointKeys(series_ids, ranks, keys, steps, wall_times)


def _add_new_step_counts(new_counts: dict[int, int], updates: Sequence[SeriesUpdate]) -> None:
    for update in updates:
        if not update.is_new:  # a new series was created with its count
            count = update.row.count + new_counts.get(update.series_id, 0)
            update.row = update.row._replace(count=count)
