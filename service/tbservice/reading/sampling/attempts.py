"""Samples of series as they were in an earlier attempt: every rule reads all points before a time.

Levels, counts and ends of a series are those of what is shown, and say nothing of its attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.sampling.bernoulli_and_full import (
    check_sample_points,
    check_scan_points,
    group_by_points,
)
from tbservice.reading.sampling.rules import draw_slots, make_sampler
from tbservice.reading.sampling.tensor_and_blob import SamplePlan, make_ranks_and_keys
from tbservice.reading.tables import attempt_scan
from tbservice.reading.tables.attempt_scan import Before
from tbservice.samples import ScalarSample
from tbservice.series.scan import AttemptScan, read_scalar_chunks
from tbservice.series.tables import sample_slots
from tbservice.series.tables.scalar_format import EMPTY_POINTS, concatenate
from tbservice.types.identifiers import ExperimentId
from tbservice.types.sampling import Sampling, SamplingRule
from tbservice.types.series import Series
from tbwire.points import DataClass, ScalarPoints


@dataclass(slots=True)
class _SoFar:
    """The points of a series kept so far, and the number of those that were read."""

    points: ScalarPoints = EMPTY_POINTS
    total: int = 0


def sample_scalars(
    db: Connection,
    experiment_id: ExperimentId,
    series_list: Sequence[Series],
    sampling: Sampling,
    before: Before,
) -> dict[int, ScalarSample]:
    """Return a sample of each series, by series id, of its points before a wall time.

    Raises TooLarge when more than `SCAN_POINTS_MAX` points must be read, or the samples have more
    than `READ_POINTS_MAX` points.
    """
    samples: dict[int, ScalarSample] = {}
    scanned = kept = 0
    for group in group_by_points(series_list):
        scan = _Scan(db, experiment_id, sampling, {s.series_id: before[s.series_id] for s in group})
        for id_, sample in scan.sample():
            samples[id_] = sample
            scanned += sample.total
            kept += len(sample.steps)
            check_scan_points(scanned)
            check_sample_points(kept)
    return samples


@dataclass(frozen=True, slots=True)
class _Scan:
    """The scan of a group of series."""

    db: Connection
    experiment_id: ExperimentId
    sampling: Sampling
    before: Before

    def sample(self) -> Iterator[tuple[int, ScalarSample]]:
        """Yield the sample of each series."""
        ranks = sample_slots.get_ranks(self.db)
        is_drawn = draw_slots(self.db, self.sampling)
        if self.sampling.last is not None:
            for id_, so_far in self._read_last(self.sampling.last).items():
                points = so_far.points
                ends = (int(points.steps[0]), int(points.steps[-1])) if len(points) else (0, -1)
                sampler = make_sampler(self.sampling, ends, ranks, is_drawn)
                yield (
                    id_,
                    _make_sample(points.select(sampler(points.steps, points.values)), so_far.total),
                )
            return

        samplers = {
            id_: make_sampler(self.sampling, ends, ranks, is_drawn)
            for id_, ends in self._find_ends().items()
        }
        kept = {id_: _SoFar() for id_ in self.before}
        for id_, points in self._chunks():
            so_far = kept[id_]
            candidates = concatenate([so_far.points, points])
            so_far.points = candidates.select(samplers[id_](candidates.steps, candidates.values))
            so_far.total += len(points)
            check_scan_points(so_far.total)
            check_sample_points(len(so_far.points))
        for id_, so_far in kept.items():
            yield id_, _make_sample(so_far.points, so_far.total)

    def _chunks(self) -> Iterator[tuple[int, ScalarPoints]]:
        scans = {id_: AttemptScan(time) for id_, time in self.before.items()}
        return read_scalar_chunks(
            self.db,
            self.experiment_id,
            list(self.before),
            self.sampling.steps,
            limits.SCAN_CHUNK_POINTS,
            attempts=scans,
        )

    def _find_ends(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last step of each series, which a linear sample needs."""
        ends = dict.fromkeys(self.before, (0, -1))
        if self.sampling.rule is not SamplingRule.LINEAR:
            return ends
        for id_, points in self._chunks():
            if len(points):
                first = ends[id_][0] if ends[id_] != (0, -1) else int(points.steps[0])
                ends[id_] = first, int(points.steps[-1])
        return ends

    def _read_last(self, last: int) -> dict[int, _SoFar]:
        """Return the last points of each series; `total` counts all."""
        kept = {id_: _SoFar() for id_ in self.before}
        for id_, points in self._chunks():
            so_far = kept[id_]
            candidates = concatenate([so_far.points, points])
            so_far.points = candidates.select(slice(max(0, len(candidates) - last), None))
            so_far.total += len(points)
            check_scan_points(so_far.total)
        return kept


def _make_sample(points: ScalarPoints, total: int) -> ScalarSample:
    return ScalarSample(points.steps, points.wall_times, points.values, total)


def plan_sample(
    db: Connection,
    experiment_id: ExperimentId,
    data_class: DataClass,
    sampling: Sampling,
    before: Before,
) -> SamplePlan:
    """Return which rows of tensor or blob sequence series to read: see `attempt_scan`."""
    ranks = sample_slots.get_ranks(db)
    is_drawn = draw_slots(db, sampling)
    steps = attempt_scan.list_steps(db, experiment_id, data_class, before, sampling.steps)
    ranks_and_keys = {}
    for id_, series_steps in steps.items():
        chosen = series_steps
        if sampling.last is not None:
            chosen = series_steps[max(0, len(series_steps) - sampling.last) :]
        ends = (int(chosen[0]), int(chosen[-1])) if len(chosen) else (0, -1)
        sampler = make_sampler(sampling, ends, ranks, is_drawn)
        kept = sampler(chosen, np.empty(0, np.float64))
        ranks_and_keys[id_] = make_ranks_and_keys(chosen[kept], ranks)
    return SamplePlan(0, ranks_and_keys, {id_: len(column) for id_, column in steps.items()})
