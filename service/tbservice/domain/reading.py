"""Listing and sampling what an experiment holds.

Every function wants a snapshot (`Database.snapshot`): a merge may move points between the statements of one answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.domain.blobs import blob_key
from tbservice.domain.newest import newest_of_each_step
from tbservice.domain.sampling import (
    RANK_MAX,
    choose,
    coarsest_level,
    level_fractions,
    level_ranks_max,
    rank_and_key,
)
from tbservice.errors import Invalid, TooLarge
from tbservice.store import blob_points, names, sample_slots, scalar_blocks, scalar_tail, tensor_points, time_series
from tbservice.store.blob_points import BlobPoint
from tbservice.store.packing import EMPTY, Points, concatenate
from tbservice.store.tensor_points import TensorPoint
from tbservice.types import (
    BlobSequenceSample,
    DataClass,
    ExperimentId,
    Ranks,
    ReadGrant,
    Run,
    ScalarSample,
    Selection,
    Series,
    TensorSample,
)

_ENDS: Final = 2

T = TypeVar("T")
ByRunAndTag = dict[str, dict[str, T]]


def list_runs(db: Connection, grant: ReadGrant) -> list[Run]:
    """Every run, in the order in which they came: that order only ever grows at its end."""
    return names.list_runs(db, grant.experiment_id)


def list_plugins(db: Connection, grant: ReadGrant) -> list[str]:
    """The plugins that own a series, by name."""
    return time_series.list_plugins(db, grant.experiment_id)


def list_series(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """The selected series, without a look at their points: a `count` may not be exact, and says so."""
    return time_series.list_series(db, grant.experiment_id, selection)


def list_series_counted(db: Connection, grant: ReadGrant, selection: Selection) -> list[Series]:
    """The selected series, each with its exact number of points: those whose count is not exact are read."""
    found = list_series(db, grant, selection)
    inexact = [series for series in found if not series.count_is_exact]
    counts = {id_: len(points) for id_, points in read_whole(db, grant, inexact).items()}
    return [
        series if series.count_is_exact else replace(series, count=counts[series.series_id], count_is_exact=True)
        for series in found
    ]


def read_scalars(db: Connection, grant: ReadGrant, selection: Selection, downsample: int) -> ByRunAndTag[ScalarSample]:
    """A uniform sample of `downsample` points of every selected scalar series: see `sampling`.

    Raises TooLarge when that is over `read_points_max` points, Invalid for a negative number.
    """
    found = _select(db, grant, selection, DataClass.SCALAR, downsample)
    samples = _ends_alone(found, downsample)
    ranks = sample_slots.get_ranks(db)
    fractions = level_fractions(ranks)
    # Of a series whose count is not exact, the points are counted, and so all of them are read.
    levels = {
        series.series_id: coarsest_level(series.sealed_count, downsample, fractions) if series.count_is_exact else 0
        for series in found
        if series.series_id not in samples
    }
    while levels:
        samples |= _sample_scalars(db, grant.experiment_id, found, levels, downsample, ranks)
        levels = {id_: level - 1 for id_, level in levels.items() if id_ not in samples}
    return _by_run_and_tag(found, samples)


def read_tensors(db: Connection, grant: ReadGrant, selection: Selection, downsample: int) -> ByRunAndTag[TensorSample]:
    """A uniform sample of every selected tensor series. Raises as `read_scalars`; TooLarge over `read_bytes_max`."""
    found = _select(db, grant, selection, DataClass.TENSOR, downsample)
    ranks = sample_slots.get_ranks(db)
    rows: defaultdict[int, dict[int, TensorPoint]] = defaultdict(dict)
    size = 0
    for point in tensor_points.sample(db, grant.experiment_id, downsample, _ends(found, ranks, downsample)):
        size += len(point.value.data)
        check_size(size)
        rows[point.series_id][point.step] = point
    samples = {}
    for series in found:
        chosen = _choose_rows(rows[series.series_id], downsample, ranks)
        values = [point.value for point in chosen]
        samples[series.series_id] = TensorSample(_steps(chosen), _wall_times(chosen), values, series.count)
    return _by_run_and_tag(found, samples)


def read_blob_sequences(
    db: Connection, grant: ReadGrant, selection: Selection, downsample: int
) -> ByRunAndTag[BlobSequenceSample]:
    """A uniform sample of every selected blob sequence series, as keys. Raises as `read_scalars`."""
    found = _select(db, grant, selection, DataClass.BLOB_SEQUENCE, downsample)
    ranks = sample_slots.get_ranks(db)
    rows: defaultdict[int, dict[int, BlobPoint]] = defaultdict(dict)
    for point in blob_points.sample(db, grant.experiment_id, downsample, _ends(found, ranks, downsample)):
        rows[point.series_id][point.step] = point
    samples = {}
    for series in found:
        chosen = _choose_rows(rows[series.series_id], downsample, ranks)
        keys = [_keys(grant.experiment_id, point) for point in chosen]
        samples[series.series_id] = BlobSequenceSample(_steps(chosen), _wall_times(chosen), keys, series.count)
    return _by_run_and_tag(found, samples)


def check_size(size: int) -> None:
    """Raises TooLarge when an answer has more than `read_bytes_max` bytes of tensors."""
    if size > limits.read_bytes_max:
        raise TooLarge(f"the answer is over {limits.read_bytes_max} bytes of tensors; ask for fewer points or series")


def _select(
    db: Connection, grant: ReadGrant, selection: Selection, data_class: DataClass, downsample: int
) -> list[Series]:
    if not 0 <= downsample < 2**31:
        raise Invalid("downsample is a number from 0 to 2147483647")
    found = time_series.list_series(db, grant.experiment_id, replace(selection, data_class=data_class))
    points = sum(min(downsample, series.count) for series in found)
    if points > limits.read_points_max:
        detail = f"{len(found)} series of at most {downsample} points are {points} points"
        raise TooLarge(f"{detail}, over the limit of {limits.read_points_max}; ask for fewer points or series")
    return found


def _by_run_and_tag(found: Iterable[Series], samples: Mapping[int, T]) -> ByRunAndTag[T]:
    answer: ByRunAndTag[T] = {}
    for series in found:
        answer.setdefault(series.run, {})[series.tag] = samples[series.series_id]
    return answer


def _sample_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    found: Iterable[Series],
    levels: Mapping[int, int],
    downsample: int,
    ranks: Ranks,
) -> dict[int, ScalarSample]:
    """Samples from these levels (series id to level); a series whose level held too few points is left out."""
    candidates = _read_levels(db, experiment_id, levels)
    samples = {}
    for series in found:
        level = levels.get(series.series_id)
        if level is None:
            continue
        points = candidates.get(series.series_id, EMPTY)
        total = series.count if series.count_is_exact else len(points)
        points = _with_ends(points, series) if level else points
        chosen = choose(points.steps, downsample, ranks, level_ranks_max(level))
        if chosen is not None:
            kept = points.take(chosen)
            samples[series.series_id] = ScalarSample(kept.steps, kept.wall_times, kept.values, total)
    return samples


def _ends_alone(found: Iterable[Series], downsample: int) -> dict[int, ScalarSample]:
    """The samples of those series of which no more is wanted than their first and last point, which their rows keep."""
    known = [series for series in found if series.count_is_exact and min(downsample, series.count) <= _ENDS]
    steps = np.array([(one.first_step, one.last_step) for one in known], np.int64).reshape(-1, _ENDS)
    times = np.array([(one.first_wall_time, one.last_wall_time) for one in known], np.float64).reshape(-1, _ENDS)
    values = np.array([(one.first_value, one.last_value) for one in known], np.float64).reshape(-1, _ENDS)
    samples = {}
    for row, series in enumerate(known):
        begin = _ENDS - min(downsample, series.count)
        ends = steps[row, begin:], times[row, begin:], values[row, begin:]
        samples[series.series_id] = ScalarSample(*ends, series.count)
    return samples


def _read_levels(db: Connection, experiment_id: ExperimentId, levels: Mapping[int, int]) -> dict[int, Points]:
    """What each series' level, open blocks and tail hold: the newest of each step, in step order."""
    blocks = scalar_blocks.read(db, experiment_id, levels)
    tails = scalar_tail.read(db, experiment_id, list(levels))
    return {
        id_: newest_of_each_step(concatenate([*blocks.get(id_, []), *([tails[id_]] if id_ in tails else [])]))
        for id_ in levels
    }


def read_whole(db: Connection, grant: ReadGrant, found: Sequence[Series]) -> dict[int, Points]:
    """All points of these scalar series, by series id, in step order."""
    return _read_levels(db, grant.experiment_id, {series.series_id: 0 for series in found}) if found else {}


def _with_ends(points: Points, series: Series) -> Points:
    """A level's points with the series' own first and last, which the series' row keeps."""
    ends = Points(
        np.array([series.first_step, series.last_step]),
        np.array([series.first_wall_time, series.last_wall_time]),
        np.array([series.first_value, series.last_value], np.float64),
    )
    return newest_of_each_step(concatenate([points, ends]))


def _ends(found: Iterable[Series], ranks: Ranks, downsample: int) -> dict[int, list[tuple[int, int]]]:
    """Where the first and the last step of each series stand in the order to sample by; none for a sample of 0."""
    ends = {}
    for series in found:
        steps = [series.last_step, series.first_step][: min(downsample, series.count, 2)]
        rank, key = rank_and_key(np.array(steps, np.int64), ranks)
        ends[series.series_id] = list(zip(rank.tolist(), key.tolist(), strict=True))
    return ends


Row = TypeVar("Row", TensorPoint, BlobPoint)


def _choose_rows(rows: Mapping[int, Row], downsample: int, ranks: Ranks) -> list[Row]:
    """A uniform sample of the rows by step: they hold the ends and at least the first `downsample` of the order."""
    steps = np.array(sorted(rows), np.int64)
    chosen = choose(steps, downsample, ranks, RANK_MAX)
    assert chosen is not None  # noqa: S101 - all ranks are candidates, so there are always enough
    return [rows[step] for step in steps[chosen].tolist()]


def _steps(rows: Sequence[Row]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([row.step for row in rows], np.int64)


def _wall_times(rows: Sequence[Row]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([row.wall_time for row in rows], np.float64)


def _keys(experiment_id: ExperimentId, point: BlobPoint) -> list[str]:
    return [
        blob_key(experiment_id, point.series_id, point.step, index, digest)
        for index, digest in enumerate(point.digests)
    ]
