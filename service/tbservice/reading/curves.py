"""Small curves of one scalar for a list of experiments: samples of a few runs of each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection

from tbservice import limits
from tbservice.reading.sampling import uniform
from tbservice.reading.tables import curves
from tbservice.samples import ScalarSample
from tbservice.series.tables import time_series
from tbservice.types.experiments import Experiment
from tbservice.types.grants import ReadGrant, WorkspaceGrant
from tbservice.types.identifiers import ExperimentId, Float64s, Int64s
from tbservice.types.sampling import ALL_STEPS, Selection
from tbservice.types.series import Series
from tbwire.points import DataClass

CHART_TAGS_ITEMS_MAX: Final = 40
"""Scalar tags (items) that the list offers to draw."""

CHART_CURVES_ITEMS_MAX: Final = 3
"""Curves (items) of one experiment in the list."""

CHART_POINTS: Final = 60
"""Points of one curve in the list."""


class Curve(NamedTuple):
    """Points of one run, in step order."""

    run: str
    steps: Int64s
    values: Float64s


class Chart(NamedTuple):
    """The curves of one scalar tag in the newest runs that have it, the newest first."""

    tag: str
    curves: list[Curve]


def list_tags(
    db: Connection, _grant: WorkspaceGrant, experiments: Sequence[Experiment]
) -> dict[ExperimentId, list[str]]:
    """Return scalar tags of each experiment that has any, the one to draw first."""
    return curves.list_tags(db, [experiment.experiment_id for experiment in experiments])


def list_common_tags(tags: Mapping[ExperimentId, Sequence[str]]) -> list[str]:
    """Return the tags that a list offers to draw, the tags of most experiments first."""
    counts = Counter(tag for names in tags.values() for tag in names)
    ranked = sorted(counts, key=lambda tag: (-counts[tag], curves.rank_tag(tag)))
    return ranked[:CHART_TAGS_ITEMS_MAX]


def read_charts(
    db: Connection, _grant: WorkspaceGrant, tags: Mapping[ExperimentId, str]
) -> dict[ExperimentId, Chart]:
    """Return the chart of each experiment that has the tag which `tags` names for it.

    The same data gives the same charts: runs are chosen by name and start. `db` is a snapshot.
    """
    by_tag: defaultdict[str, list[ExperimentId]] = defaultdict(list)
    for experiment_id, tag in tags.items():
        by_tag[tag].append(experiment_id)
    return {
        experiment_id: Chart(tag, drawn)
        for tag, ids in by_tag.items()
        for experiment_id, runs in curves.list_runs_with_tag(db, ids, tag).items()
        if (drawn := _read(db, experiment_id, runs[:CHART_CURVES_ITEMS_MAX], tag))
    }


def rank_tags(tags: Iterable[str]) -> list[str]:
    """Return tags in the order in which cards show them: losses first, the machine's last."""
    return sorted(tags, key=curves.rank_tag)


def list_tag_page(
    db: Connection, grant: ReadGrant, search: str, first: int, limit: int
) -> tuple[list[str], int]:
    """Return scalar tags whose name contains a text, the one to draw first, and how many."""
    return curves.list_tag_page(db, grant.experiment_id, search, first, limit)


def list_run_page(
    db: Connection, grant: ReadGrant, search: str, limit: int
) -> tuple[list[str], int]:
    """Return runs whose name contains a text, the newest first, and how many there are."""
    return curves.list_run_page(db, grant.experiment_id, search, limit)


def read_run_charts(
    db: Connection, grant: ReadGrant, tags: Sequence[str], runs: Sequence[str]
) -> dict[str, Chart]:
    """Return the charts of tags in these runs, in their order; tags without curves are missing.

    `db` is a snapshot.
    """
    series_list, samples = _sample(db, grant.experiment_id, runs, tags)
    charts: dict[str, Chart] = {}
    for series in sorted(series_list, key=lambda series: runs.index(series.run)):
        if (sample := samples.get(series.series_id)) is not None:
            chart = charts.setdefault(series.tag, Chart(series.tag, []))
            chart.curves.append(Curve(series.run, sample.steps, sample.values))
    return charts


def _read(
    db: Connection, experiment_id: ExperimentId, runs: Sequence[str], tag: str
) -> list[Curve]:
    series_list, samples = _sample(db, experiment_id, runs, [tag])
    drawn = [
        Curve(series.run, sample.steps, sample.values)
        for series in series_list
        if (sample := samples.get(series.series_id)) is not None
    ]
    return sorted(drawn, key=lambda curve: runs.index(curve.run))


def _sample(
    db: Connection, experiment_id: ExperimentId, runs: Sequence[str], tags: Sequence[str]
) -> tuple[list[Series], dict[int, ScalarSample]]:
    selection = Selection(runs=frozenset(runs), tags=frozenset(tags), data_class=DataClass.SCALAR)
    series_list = [
        series
        for series in time_series.list_series(db, experiment_id, selection)
        # The points of others would all be read, to be counted.
        if series.count_is_exact or series.count <= limits.BLOCK_POINTS_MAX
    ]
    samples = uniform.sample_scalars(db, experiment_id, series_list, CHART_POINTS, ALL_STEPS)
    return series_list, samples
