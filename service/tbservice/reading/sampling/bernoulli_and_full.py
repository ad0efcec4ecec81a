"""Samples of scalar series that read all points (every rule but `uniform`), or the last k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.reading.sampling import uniform
from tbservice.reading.sampling.rules import Sampler, draw_slots, make_sampler
from tbservice.samples import ScalarSample
from tbservice.series.scan import read_scalar_chunks
from tbservice.series.tables import sample_slots, scalar_blocks
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import Sampling, SamplingRule
from tbservice.types.series import Series

SCAN_POINTS_MAX: Final = 100_000_000
"""Scalar points read for one response, before sampling."""


def sample_scalars(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], sampling: Sampling
) -> dict[int, ScalarSample]:
    """Return a sample of each series, by series id.

    Raises TooLarge when more than `SCAN_POINTS_MAX` points must be read, or the samples have more
    than `READ_POINTS_MAX` points.
    """
    if sampling.last is not None:
        return _sample_last(db, experiment_id, series_list, sampling)

    check_scan_points(sum(series.count for series in series_list if sampling.steps.covers(series)))
    samples: dict[int, ScalarSample] = {}
    scanned = kept = 0
    for group in group_by_points(series_list):
        for id_, sample in _sample_chunks(db, experiment_id, group, sampling):
            samples[id_] = sample
            scanned += sample.total
            kept += len(sample.steps)
            check_scan_points(scanned)
            check_sample_points(kept)
    return samples


def check_scan_points(count: int) -> None:
    """Raise TooLarge when this is more points than one request may read."""
    if count > SCAN_POINTS_MAX:
        raise TooLarge(
            f"the request reads {count} points, over the limit of {SCAN_POINTS_MAX} "
            "(scan_points_max); request fewer series at a time"
        )


def group_by_points(series_list: Sequence[Series]) -> Iterator[list[Series]]:
    """Yield groups of consecutive series with at most `SCAN_CHUNK_POINTS` points, or one series."""
    group: list[Series] = []
    points = 0
    for series in series_list:
        if group and points + series.count > limits.SCAN_CHUNK_POINTS:
            yield group
            group, points = [], 0
        group.append(series)
        points += series.count
    if group:
        yield group


def _sample_chunks(
    db: Connection, experiment_id: ExperimentId, group: Sequence[Series], sampling: Sampling
) -> Iterator[tuple[int, ScalarSample]]:
    samplers = _make_samplers(db, experiment_id, group, sampling)
    kept = dict.fromkeys(samplers, EMPTY_POINTS)
    totals = dict.fromkeys(samplers, 0)
    chunks = read_scalar_chunks(
        db, experiment_id, list(samplers), sampling.steps, limits.SCAN_CHUNK_POINTS
    )
    for id_, points in chunks:
        totals[id_] += len(points)
        check_scan_points(totals[id_])
        # The sampler sees what it kept before: so memory is that of the sample, not of the series.
        candidates = concatenate([kept[id_], points])
        kept[id_] = candidates.select(samplers[id_](candidates.steps, candidates.values))
        check_sample_points(len(kept[id_]))

    for id_, sample in kept.items():
        yield id_, ScalarSample(sample.steps, sample.wall_times, sample.values, totals[id_])


def _make_samplers(
    db: Connection, experiment_id: ExperimentId, group: Sequence[Series], sampling: Sampling
) -> dict[int, Sampler]:
    """Return the sampler of each series. A linear one needs the ends of the range, read first."""
    ranks = sample_slots.get_ranks(db)
    is_drawn = draw_slots(db, sampling)

    ends = {series.series_id: (0, -1) for series in group}
    if sampling.rule is SamplingRule.LINEAR:
        for id_, sample in uniform.sample_scalars(
            db, experiment_id, group, 2, sampling.steps
        ).items():
            if sample.total:
                ends[id_] = (int(sample.steps[0]), int(sample.steps[-1]))

    return {
        id_: make_sampler(sampling, series_ends, ranks, is_drawn)
        for id_, series_ends in ends.items()
    }


def _sample_last(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], sampling: Sampling
) -> dict[int, ScalarSample]:
    """Return a sample of the last `sampling.last` points of each series.

    Raises TooLarge when more than `SCAN_POINTS_MAX` points must be read in all.
    """
    assert sampling.last is not None  # noqa: S101 - the caller's condition
    ranks = sample_slots.get_ranks(db)
    is_drawn = draw_slots(db, sampling)
    exact = [series.series_id for series in series_list if series.count_is_exact]
    ranges = scalar_blocks.list_last_ranges(db, experiment_id, exact, max(sampling.last, 1))
    check_scan_points(
        sum(
            min(sampling.last, series.count) if series.count_is_exact else series.count
            for series in series_list
        )
    )

    samples = {}
    for group in group_by_points(series_list):
        read = uniform.read_levels(
            db, experiment_id, {series.series_id: 0 for series in group}, ranges
        )
        for series in group:
            points = read[series.series_id]
            total = series.count if series.count_is_exact else len(points)
            points = points.select(slice(max(0, len(points) - sampling.last), None))
            ends = (int(points.steps[0]), int(points.steps[-1])) if len(points) else (0, -1)
            kept = points.select(
                make_sampler(sampling, ends, ranks, is_drawn)(points.steps, points.values)
            )
            samples[series.series_id] = ScalarSample(
                kept.steps, kept.wall_times, kept.values, total
            )
    return samples


def check_sample_points(count: int) -> None:
    """Raise TooLarge when samples have more points than one response may have."""
    if count > limits.READ_POINTS_MAX:
        limit = f"the limit of {limits.READ_POINTS_MAX} points (read_points_max)"
        raise TooLarge(f"the sample exceeds {limit}; request fewer points")
