"""Samples of scalar series that read all points (every rule but `uniform`), or the last k.

Every rule reads all points of an earlier attempt: levels, counts and ends of a series are those of
what is shown, and say nothing of its attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sqlalchemy import Connection

from tbservice import limits
from tbservice.errors import TooLarge
from tbservice.grouping import group_by_weight
from tbservice.reading.sampling import uniform
from tbservice.reading.sampling.rules import Ends, Sampler, find_ends, prepare_samplers
from tbservice.reading.tables.attempt_scan import Before
from tbservice.samples import ScalarSample
from tbservice.series.scan import AttemptScan, read_scalar_chunks
from tbservice.series.tables import scalar_blocks
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import Sampling, SamplingRule
from tbservice.types.series import Series
from tbwire.points import ScalarPoints

_SHOWN: Final[Mapping[int, float]] = MappingProxyType({})
"""No times: the points that are shown, not those of an earlier attempt."""

SCAN_POINTS_MAX: Final = 100_000_000
"""Scalar points read for one response, before sampling."""


def sample_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    series_list: Sequence[Series],
    sampling: Sampling,
    before: Before = _SHOWN,
) -> dict[int, ScalarSample]:
    """Return a sample of each series, by series id.

    With `before`, which has the wall time of each series, it is a sample of the points before that.

    Raises TooLarge when more than `SCAN_POINTS_MAX` points must be read, or the samples have more
    than `READ_POINTS_MAX` points.
    """
    if sampling.last is not None and not before:
        return _sample_last(db, experiment_id, series_list, sampling)

    if not before:
        covered = [series for series in series_list if sampling.steps.covers(series)]
        check_scan_points(sum(series.count for series in covered))
    samples: dict[int, ScalarSample] = {}
    scanned = kept = 0
    for group in group_by_points(series_list):
        for id_, sample in _Scan(db, experiment_id, group, sampling, before).sample():
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
    return group_by_weight(series_list, lambda series: series.count, limits.SCAN_CHUNK_POINTS)


@dataclass(slots=True)
class _SoFar:
    """The points of a series kept so far, and the number of those that were read."""

    points: ScalarPoints = EMPTY_POINTS
    total: int = 0


@dataclass(frozen=True, slots=True)
class _Scan:
    """The scan of a group of series: of all points, or of those before a wall time."""

    db: Connection
    experiment_id: ExperimentId
    group: Sequence[Series]
    sampling: Sampling
    before: Before

    def sample(self) -> Iterator[tuple[int, ScalarSample]]:
        """Yield the sample of each series."""
        make_sampler = prepare_samplers(self.db, self.sampling)
        if self.sampling.last is not None:
            for id_, so_far in self._read_last(self.sampling.last).items():
                yield id_, _make_sample(make_sampler, so_far.points, so_far.total)
            return

        samplers = {id_: make_sampler(ends) for id_, ends in self._find_ends().items()}
        kept = {id_: _SoFar() for id_ in samplers}
        for id_, points in self._chunks():
            so_far = kept[id_]
            # The sampler sees what it kept before: so memory is that of the sample, not of the
            # series.
            candidates = concatenate([so_far.points, points])
            so_far.points = candidates.select(samplers[id_](candidates.steps, candidates.values))
            so_far.total += len(points)
            check_scan_points(so_far.total)
            check_sample_points(len(so_far.points))
        for id_, so_far in kept.items():
            points = so_far.points
            yield id_, ScalarSample(points.steps, points.wall_times, points.values, so_far.total)

    def _chunks(self) -> Iterator[tuple[int, ScalarPoints]]:
        ids = [series.series_id for series in self.group]
        return read_scalar_chunks(
            self.db,
            self.experiment_id,
            ids,
            self.sampling.steps,
            limits.SCAN_CHUNK_POINTS,
            attempts={id_: AttemptScan(self.before[id_]) for id_ in ids} if self.before else {},
        )

    def _find_ends(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last step of each series, which a linear sample needs."""
        ends = {series.series_id: (0, -1) for series in self.group}
        if self.sampling.rule is not SamplingRule.LINEAR:
            return ends
        if not self.before:
            both = uniform.sample_scalars(
                self.db, self.experiment_id, self.group, 2, self.sampling.steps
            )
            return ends | {id_: find_ends(sample.steps) for id_, sample in both.items()}
        for id_, points in self._chunks():
            if len(points):
                first, last = find_ends(points.steps)
                ends[id_] = (first if ends[id_] == (0, -1) else ends[id_][0]), last
        return ends

    def _read_last(self, last: int) -> dict[int, _SoFar]:
        """Return the last points of each series; `total` counts all."""
        kept = {series.series_id: _SoFar() for series in self.group}
        for id_, points in self._chunks():
            so_far = kept[id_]
            candidates = concatenate([so_far.points, points])
            so_far.points = candidates.select(slice(max(0, len(candidates) - last), None))
            so_far.total += len(points)
            check_scan_points(so_far.total)
        return kept


def _sample_last(
    db: Connection, experiment_id: ExperimentId, series_list: Sequence[Series], sampling: Sampling
) -> dict[int, ScalarSample]:
    """Return a sample of the last `sampling.last` points of each series.

    Raises TooLarge when more than `SCAN_POINTS_MAX` points must be read in all.
    """
    assert sampling.last is not None  # noqa: S101 - the caller's condition
    make_sampler = prepare_samplers(db, sampling)
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
            samples[series.series_id] = _make_sample(make_sampler, points, total)
    return samples


def _make_sample(
    make_sampler: Callable[[Ends], Sampler], points: ScalarPoints, total: int
) -> ScalarSample:
    """Return a sample of these points of a series that has `total`."""
    sampler = make_sampler(find_ends(points.steps))
    kept = points.select(sampler(points.steps, points.values))
    return ScalarSample(kept.steps, kept.wall_times, kept.values, total)


def check_sample_points(count: int) -> None:
    """Raise TooLarge when samples have more points than one response may have."""
    if count > limits.READ_POINTS_MAX:
        limit = f"the limit of {limits.READ_POINTS_MAX} points (read_points_max)"
        raise TooLarge(f"the sample exceeds {limit}; request fewer points")
