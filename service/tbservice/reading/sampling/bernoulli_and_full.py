"""Samples of scalar series for which their points are read: by a rule that looks at all, or of the last k."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.reading.sampling import uniform
from tbservice.reading.sampling.rules import Sampler, draw_slots, make_sampler
from tbservice.scalars.scan import read_scalar_chunks
from tbservice.store import sample_slots, scalar_blocks
from tbservice.store.scalar_format import EMPTY_POINTS, ScalarPoints, concatenate
from tbservice.types import ExperimentId, Sampling, SamplingRule, ScalarSample, Series
from tbwire.digests import Records


def sample_scalars(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], sampling: Sampling
) -> dict[int, ScalarSample]:
    """A sample of each series, by its id.

    Raises TooLarge when over `SCAN_POINTS_MAX` points are looked at for it, or over `READ_POINTS_MAX` were drawn.
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
            _check_sample_points(kept)
    return samples


def check_scan_points(count: int) -> None:
    """Raises TooLarge when that is more points than are looked at for one answer."""
    if count > limits.SCAN_POINTS_MAX:
        raise TooLarge(
            f"the answer needs a look at {count} points, over the limit of {limits.SCAN_POINTS_MAX} "
            "(scan_points_max); ask for fewer series at a time"
        )


def group_by_points(series_list: Sequence[Series]) -> Iterator[list[Series]]:
    """The series in their order, as many at a time as have at most `SCAN_CHUNK_POINTS` together, or a single one."""
    group: list[Series] = []
    held = 0
    for series in series_list:
        if group and held + series.count > limits.SCAN_CHUNK_POINTS:
            yield group
            group, held = [], 0
        group.append(series)
        held += series.count
    if group:
        yield group


def _sample_chunks(
    db: Connection, experiment_id: ExperimentId, group: Sequence[Series], sampling: Sampling
) -> Iterator[tuple[int, ScalarSample]]:
    samplers = _make_samplers(db, experiment_id, group, sampling)
    kept = dict.fromkeys(samplers, EMPTY_POINTS)
    totals = dict.fromkeys(samplers, 0)
    pieces = read_scalar_chunks(
        db, experiment_id, list(samplers), sampling.steps, limits.SCAN_CHUNK_POINTS
    )
    for id_, records in pieces:
        totals[id_] += len(records)
        check_scan_points(totals[id_])
        candidates = concatenate([kept[id_], _as_points(records)])
        kept[id_] = candidates.select(samplers[id_](candidates.steps, candidates.values))
        _check_sample_points(len(kept[id_]))
    for id_, points in kept.items():
        yield id_, ScalarSample(points.steps, points.wall_times, points.values, totals[id_])


def _make_samplers(
    db: Connection, experiment_id: ExperimentId, group: Sequence[Series], sampling: Sampling
) -> dict[int, Sampler]:
    """How to choose among each series' points; by the distances of a linear sample, its ends are looked up first."""
    ranks = sample_slots.get_ranks(db)
    is_drawn = draw_slots(db, sampling)
    ends = {series.series_id: (0, -1) for series in group}
    if sampling.rule is SamplingRule.LINEAR:
        for id_, sample in uniform.sample_scalars(
            db, experiment_id, group, 2, sampling.steps
        ).items():
            if sample.total:
                ends[id_] = (int(sample.steps[0]), int(sample.steps[-1]))
    return {id_: make_sampler(sampling, own, ranks, is_drawn) for id_, own in ends.items()}


def _sample_last(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], sampling: Sampling
) -> dict[int, ScalarSample]:
    """Samples of the last points of each series, of which there may be at most `SCAN_POINTS_MAX` in all."""
    assert sampling.last is not None  # noqa: S101 - what tells this sampling from others
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


def _check_sample_points(count: int) -> None:
    if count > limits.READ_POINTS_MAX:
        limit = f"the limit of {limits.READ_POINTS_MAX} points (read_points_max)"
        raise TooLarge(f"the sample is over {limit}; ask for fewer")


def _as_points(records: Records) -> ScalarPoints:
    return ScalarPoints(
        records["step"].copy(), records["wall_time"].copy(), records["value"].copy()
    )
