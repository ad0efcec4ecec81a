"""Samples in write order, for TensorBoard's classic API: fixed samples of positions.

They replace TensorBoard's reservoirs (tensorboard/backend/event_processing/reservoir.py).
Write order is the order of wall times; points of equal wall times are ordered by step, as the order
of arrival is not stored. Which positions are in a sample depends on the number of points only, so
that tags of one run that were written together are sampled at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.objects.tables import blobs
from tbservice.reading import catalog, tensor_objects
from tbservice.reading.sampling.bernoulli_and_full import check_scan_points, group_by_points
from tbservice.sample_order import compute_rank_and_key, splitmix64
from tbservice.samples import ScalarSample, TensorSample
from tbservice.series.tables import blob_points, points, sample_slots, value_scan
from tbservice.series.tables.value_scan import BlobRow, TensorRow
from tbservice.types.grants import ReadGrant
from tbservice.types.identifiers import Float64s, Int64s
from tbservice.types.sampling import Selection
from tbservice.types.series import Blob, Series
from tbwire.points import DataClass

PositionSampler = Callable[[int], Int64s]
"""Maps a number of points to the ascending positions of those to keep."""

_NO_SERIES: Final = "there is no such run and tag of this type"


@dataclass(frozen=True, slots=True)
class StepBlobs:
    """The blobs of one step, in order."""

    step: int
    wall_time: float
    blobs: Sequence[Blob]


@dataclass(frozen=True, slots=True)
class BlobItem:
    """One blob of a step, with the data that describes all blobs of the step.

    These are its leading blobs (`head`) and the content type that was logged with them.
    """

    step: int
    wall_time: float
    head: Sequence[Blob]
    blob: Blob
    logged_content_type: str


def reservoir(size: int) -> PositionSampler:
    """Return a sampler of at most `size` (at least 1) positions: the last, and lowest hashes.

    The hash of a position is fixed and uniform, so that no position except the last is preferred.
    """

    def choose(count: int) -> Int64s:
        if count <= size:
            return np.arange(count)
        hashes = splitmix64(np.arange(count - 1))
        # Without a sort: only the least hashes are needed, not their order.
        first = np.argpartition(hashes, size - 1)[: size - 1]
        return np.append(np.sort(first), count - 1)

    return choose


def equally_spaced(size: int) -> PositionSampler:
    """Return a sampler of `size` (at least 2) equidistant positions, both ends included."""

    def choose(count: int) -> Int64s:
        if count <= size:
            return np.arange(count)
        return np.arange(size) * (count - 1) // (size - 1)

    return choose


def get_series(
    db: Connection,
    grant: ReadGrant,
    run: str,
    tag: str,
    plugins: Sequence[str],
    data_class: DataClass,
) -> Series:
    """Return the series of this run and tag if one of these plugins owns it.

    A plugin's series may have any data class: what an uploader sent decides. Raises NotFound.
    """
    selection = Selection(runs=frozenset({run}), tags=frozenset({tag}), data_class=data_class)
    series_list = catalog.list_series(db, grant, selection)
    for series in series_list:
        if series.plugin in plugins:
            return series
    raise NotFound(_NO_SERIES)


def get_scalar_series(db: Connection, grant: ReadGrant, run: str, tag: str) -> Series:
    """Return the scalar series of this run and tag, of any plugin. Raises NotFound."""
    selection = Selection(runs=frozenset({run}), tags=frozenset({tag}), data_class=DataClass.SCALAR)
    series_list = catalog.list_series(db, grant, selection)
    if not series_list:
        raise NotFound(_NO_SERIES)
    return series_list[0]


def read_scalars(
    db: Connection, grant: ReadGrant, series_list: Sequence[Series], positions: PositionSampler
) -> Iterator[tuple[Series, ScalarSample]]:
    """Yield a sample of each scalar series. Raises TooLarge over `SCAN_POINTS_MAX` points."""
    check_scan_points(sum(series.count for series in series_list))
    for group in group_by_points(series_list):
        points_by_series = catalog.read_all_scalars(db, grant, group)
        for series in group:
            series_points = points_by_series[series.series_id]
            # Stable: points of equal wall times stay in the order of their steps.
            order = np.argsort(series_points.wall_times, kind="stable")
            kept = series_points.select(order[positions(len(series_points))])
            yield series, ScalarSample(kept.steps, kept.wall_times, kept.values, len(series_points))


def read_tensors(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler
) -> TensorSample:
    """Return a sample of a tensor series, of which objects remain to be loaded.

    Raises TooLarge over `READ_BYTES_MAX` bytes.
    """
    steps, wall_times, total = _choose_steps(db, grant, series, positions)

    size = 0
    values = {}
    with closing(
        value_scan.sample(db, TensorRow, grant.experiment_id, 0, _ranks_and_keys(db, series, steps))
    ) as rows:
        for point in rows:
            size += point.value.size
            catalog.check_tensor_bytes(size)
            values[point.step] = point.value

    ordered = tensor_objects.attach_object_keys(
        db, grant.workspace_id, [values[step] for step in steps.tolist()]
    )
    return TensorSample(steps, wall_times, ordered, total)


def read_blobs(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler
) -> list[StepBlobs]:
    """Return a sample of a blob sequence series."""
    steps, wall_times, _total = _choose_steps(db, grant, series, positions)
    sequences, _ = _read_sequences(db, grant, series, steps)
    return [
        StepBlobs(step, wall_time, sequences[step])
        for step, wall_time in zip(steps.tolist(), wall_times.tolist(), strict=True)
    ]


def read_blob_items(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler, head_length: int
) -> list[BlobItem]:
    """Return a sample of the single blobs of a series, of which a step may have several.

    The first `head_length` blobs of a step are not sampled: they accompany each item of the step.
    """
    steps, wall_times, lengths = blob_points.list_lengths(db, grant.experiment_id, series)
    counts = np.maximum(lengths - head_length, 0)
    ends = np.cumsum(counts)

    kept = positions(int(counts.sum()))
    rows = np.searchsorted(ends, kept, "right")
    indices = kept - (ends - counts)[rows] + head_length
    sequences, content_types = _read_sequences(db, grant, series, np.unique(steps[rows]))

    items = zip(steps[rows].tolist(), wall_times[rows].tolist(), indices.tolist(), strict=True)
    return [
        BlobItem(
            step,
            wall_time,
            sequences[step][:head_length],
            sequences[step][index],
            content_types[step],
        )
        for step, wall_time, index in items
    ]


def _read_sequences(
    db: Connection, grant: ReadGrant, series: Series, steps: Int64s
) -> tuple[dict[int, list[Blob]], dict[int, str]]:
    """Return the blobs of each of these steps, in order, and their logged content types."""
    ends = _ranks_and_keys(db, series, steps)
    rows = list(value_scan.sample(db, BlobRow, grant.experiment_id, 0, ends))
    digests = {digest for row in rows for digest in row.digests}
    known = blobs.find_all(db, grant.workspace_id, digests)
    sequences = {row.step: [known[digest] for digest in row.digests] for row in rows}
    return sequences, {row.step: row.logged_content_type for row in rows}


def _choose_steps(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler
) -> tuple[Int64s, Float64s, int]:
    """Return steps and wall times of a sample in write order, and the total number of points."""
    steps, wall_times = points.list_steps_by_wall_time(db, grant.experiment_id, series)
    kept = positions(len(steps))
    return steps[kept], wall_times[kept], len(steps)


def _ranks_and_keys(
    db: Connection, series: Series, steps: Int64s
) -> dict[int, list[tuple[int, int]]]:
    """Return (rank, sample key) of each step, by series id, as the queries need them."""
    ranks, keys = compute_rank_and_key(steps, sample_slots.get_ranks(db))
    return {series.series_id: list(zip(ranks.tolist(), keys.tolist(), strict=True))}
