"""The points of a series in the order in which they were written, that is by wall time, and fixed samples of them.

Points of equal wall times come by step: the order in which they arrived is not kept.

A sample is one of positions in that order, and depends on how many points there are alone: tags of one run that were
written together are sampled at the same positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from tbservice.errors import NotFound
from tbservice.reading import catalog, tensor_objects
from tbservice.reading.sampling.bernoulli_and_full import check_scan_points, group_by_points
from tbservice.sample_order import compute_rank_and_key, splitmix64
from tbservice.store import blob_points, blobs, points, sample_slots, tensor_points
from tbservice.types import (
    Blob,
    DataClass,
    Float64s,
    Int64s,
    ReadGrant,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)

PositionSampler = Callable[[int], Int64s]
"""How many points there are, to the positions of those to keep, ascending."""

_NO_SERIES: Final = "there is no such run and tag of this type"


@dataclass(frozen=True, slots=True)
class StepBlobs:
    """The blobs of one step, in order."""

    step: int
    wall_time: float
    blobs: Sequence[Blob]


@dataclass(frozen=True, slots=True)
class BlobItem:
    """One blob of a step, and the first few of that step and what was logged with them, which tell about all of it."""

    step: int
    wall_time: float
    head: Sequence[Blob]
    blob: Blob
    logged_content_type: str


def reservoir(size: int) -> PositionSampler:
    """At most `size` positions, at least one: the last, and those whose fixed hash comes first.

    Each position but the last is as likely as any other to be among them, over all counts.
    """

    def choose(count: int) -> Int64s:
        if count <= size:
            return np.arange(count)
        hashes = splitmix64(np.arange(count - 1))
        first = np.argpartition(hashes, size - 1)[: size - 1]
        return np.append(np.sort(first), count - 1)

    return choose


def equally_spaced(size: int) -> PositionSampler:
    """`wanted` positions, at least two, at equal distances: the first and the last are among them."""

    def choose(count: int) -> Int64s:
        if count <= size:
            return np.arange(count)
        return np.arange(size) * (count - 1) // (size - 1)

    return choose


def get_series(
    db: Connection, grant: ReadGrant, run: str, tag: str, plugins: Sequence[str]
) -> Series:
    """The series of this run and tag, if one of these plugins owns it. Raises NotFound."""
    series_list = catalog.list_series(
        db, grant, Selection(runs=frozenset({run}), tags=frozenset({tag}))
    )
    for series in series_list:
        if series.plugin in plugins:
            return series
    raise NotFound(_NO_SERIES)


def get_scalar_series(db: Connection, grant: ReadGrant, run: str, tag: str) -> Series:
    """The scalar series of this run and tag, whatever plugin owns it. Raises NotFound."""
    chosen = Selection(runs=frozenset({run}), tags=frozenset({tag}), data_class=DataClass.SCALAR)
    series_list = catalog.list_series(db, grant, chosen)
    if not series_list:
        raise NotFound(_NO_SERIES)
    return series_list[0]


def read_scalars(
    db: Connection, grant: ReadGrant, series_list: Sequence[Series], positions: PositionSampler
) -> Iterator[tuple[Series, ScalarSample]]:
    """Samples of scalar series, one after the other. Raises TooLarge when their points are more than may be read."""
    check_scan_points(sum(series.count for series in series_list))
    for group in group_by_points(series_list):
        points_by_series = catalog.read_all_scalars(db, grant, group)
        for series in group:
            series_points = points_by_series[series.series_id]
            order = np.argsort(series_points.wall_times, kind="stable")
            kept = series_points.select(order[positions(len(series_points))])
            yield series, ScalarSample(kept.steps, kept.wall_times, kept.values, len(series_points))


def read_tensors(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler
) -> TensorSample:
    """A sample of a tensor series, its objects to be loaded. Raises TooLarge when it is over `READ_BYTES_MAX`."""
    steps, wall_times, total = _choose_steps(db, grant, series, positions)
    size = 0
    values = {}
    with closing(
        tensor_points.sample(db, grant.experiment_id, 0, _ranks_and_keys(db, series, steps))
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
    """A sample of a blob sequence series."""
    steps, wall_times, _total = _choose_steps(db, grant, series, positions)
    sequences, _ = _read_sequences(db, grant, series, steps)
    return [
        StepBlobs(step, wall_time, sequences[step])
        for step, wall_time in zip(steps.tolist(), wall_times.tolist(), strict=True)
    ]


def read_blob_items(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler, head_length: int
) -> list[BlobItem]:
    """Return a sample of the single blobs of a series, whose steps may have several each.

    The first `head_length` blobs of a step are no items: they come with each item of it.
    """
    steps, wall_times, lengths = blob_points.list_lengths(db, grant.experiment_id, series)
    counts = np.maximum(lengths - head_length, 0)
    ends = np.cumsum(counts)

    chosen = positions(int(counts.sum()))
    rows = np.searchsorted(ends, chosen, "right")
    indices = chosen - (ends - counts)[rows] + head_length
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
    """Return the blobs of each of these steps, in order, and the content types that were logged with them."""
    rows = list(blob_points.sample(db, grant.experiment_id, 0, _ranks_and_keys(db, series, steps)))
    digests = {digest for row in rows for digest in row.digests}
    known = blobs.find_all(db, grant.workspace_id, digests)
    sequences = {row.step: [known[digest] for digest in row.digests] for row in rows}
    return sequences, {row.step: row.logged_content_type for row in rows}


def _choose_steps(
    db: Connection, grant: ReadGrant, series: Series, positions: PositionSampler
) -> tuple[Int64s, Float64s, int]:
    """Steps and wall times of a sample, in write order, and of how many points it was taken."""
    steps, wall_times = points.list_steps_by_wall_time(db, grant.experiment_id, series)
    chosen = positions(len(steps))
    return steps[chosen], wall_times[chosen], len(steps)


def _ranks_and_keys(
    db: Connection, series: Series, steps: Int64s
) -> dict[int, list[tuple[int, int]]]:
    """Where the rows of these steps stand in the order to sample by."""
    ranks, keys = compute_rank_and_key(steps, sample_slots.get_ranks(db))
    return {series.series_id: list(zip(ranks.tolist(), keys.tolist(), strict=True))}
