"""Small curves of one scalar for a list of experiments: samples of a few runs of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.sampling import uniform
from tbservice.store import curves, time_series
from tbservice.types import (
    ALL_STEPS,
    Experiment,
    ExperimentId,
    Float64s,
    Int64s,
    Selection,
    WorkspaceGrant,
)
from tbwire.points import DataClass


class Curve(NamedTuple):
    """Points of one run, in step order."""

    run: str
    steps: Int64s
    values: Float64s


def list_chart_tags(
    db: Connection, _grant: WorkspaceGrant, experiments: Sequence[Experiment]
) -> list[str]:
    """Return scalar tags that a list of these experiments may show, the most common first."""
    ids = [experiment.experiment_id for experiment in experiments]
    return curves.list_common_tags(db, ids, limits.CHART_TAGS_ITEMS_MAX)


def read_curves(
    db: Connection, _grant: WorkspaceGrant, experiments: Sequence[Experiment], tag: str
) -> dict[ExperimentId, list[Curve]]:
    """Return the curves of the newest runs of each experiment that has the scalar tag.

    `db` is a snapshot.
    """
    ids = [experiment.experiment_id for experiment in experiments]
    runs = curves.list_runs_with_tag(db, ids, tag, limits.CHART_RUNS_ITEMS_MAX)
    return {
        experiment_id: _read(db, experiment_id, names[: limits.CHART_CURVES_ITEMS_MAX], tag)
        for experiment_id, names in runs.items()
    }


def _read(
    db: Connection, experiment_id: ExperimentId, runs: Sequence[str], tag: str
) -> list[Curve]:
    selection = Selection(runs=frozenset(runs), tags=frozenset([tag]), data_class=DataClass.SCALAR)
    series_list = [
        series
        for series in time_series.list_series(db, experiment_id, selection)
        # The points of others would all be read, to be counted.
        if series.count_is_exact or series.count <= limits.BLOCK_POINTS_MAX
    ]
    samples = uniform.sample_scalars(db, experiment_id, series_list, limits.CHART_POINTS, ALL_STEPS)
    return [
        Curve(series.run, sample.steps, sample.values)
        for series in series_list
        if (sample := samples.get(series.series_id)) is not None
    ]
