"""Last values of metrics in columns, and their aggregation over the sessions of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from tbservice.hparams.requests import AggregationType, MetricId
from tbservice.hparams.session_table import SessionGroups
from tbservice.types.identifiers import Booleans, Float64s, Int64s


@dataclass(frozen=True, slots=True)
class MetricRows:
    """Last points of metrics: a row per owner and metric.

    The owner is the index of a session or, aggregated, of a group; the metric is an index into a
    list that the reader of the rows returned.
    """

    owners: Int64s
    metrics: Int64s
    values: Float64s
    steps: Int64s
    wall_times: Float64s

    def select(self, rows: Booleans | Int64s) -> MetricRows:
        """Return these rows."""
        return MetricRows(
            self.owners[rows],
            self.metrics[rows],
            self.values[rows],
            self.steps[rows],
            self.wall_times[rows],
        )


def keep_earlier(
    rows: MetricRows,
    metrics: Sequence[MetricId],
    earlier: MetricRows,
    earlier_metrics: Sequence[MetricId],
) -> tuple[MetricRows, list[MetricId]]:
    """Return rows and metrics; values of `earlier_metrics` are as they were read before.

    Points may have been written in between: a value that is shown must be the one it was chosen by.
    """
    code_of = {metric: code for code, metric in enumerate(metrics)}
    codes = [code_of.setdefault(metric, len(code_of)) for metric in earlier_metrics]
    is_new = ~np.isin(rows.metrics, codes)
    renumbered = replace(earlier, metrics=np.array(codes, np.int64)[earlier.metrics])
    parts = (rows.select(is_new), renumbered)
    columns = (
        np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(MetricRows)
    )
    return MetricRows(*columns), list(code_of)


def no_rows() -> MetricRows:
    """Return rows of nothing."""
    ids, numbers = np.empty(0, np.int64), np.empty(0, np.float64)
    return MetricRows(ids, ids, numbers, ids, numbers)


def aggregate(
    rows: MetricRows,
    groups: SessionGroups,
    aggregation: AggregationType,
    representatives: Int64s | None,
) -> MetricRows:
    """Return the rows of groups, computed from the rows of their sessions.

    Args:
        rows: The rows of sessions; a session in no group is ignored.
        groups: The groups.
        aggregation: AGGREGATION_AVG takes means, all others the rows of a representative session.
        representatives: The representative session of each group, unless the mean is taken.
    """
    group_of = groups.group_of[rows.owners]
    if aggregation is AggregationType.AGGREGATION_AVG or representatives is None:
        return _average(rows.select(group_of >= 0), group_of[group_of >= 0])
    is_representative = np.zeros(len(groups.group_of), bool)
    is_representative[representatives] = True
    chosen = is_representative[rows.owners]
    selected = rows.select(chosen)
    return MetricRows(
        group_of[chosen], selected.metrics, selected.values, selected.steps, selected.wall_times
    )


def _average(rows: MetricRows, group_of: Int64s) -> MetricRows:
    """Return the mean value, step (rounded down) and wall time of each metric of each group."""
    order = np.lexsort((rows.metrics, group_of))
    group_of, rows = group_of[order], rows.select(order)
    is_first = np.ones(len(order), bool)
    is_first[1:] = (group_of[1:] != group_of[:-1]) | (rows.metrics[1:] != rows.metrics[:-1])
    starts = np.flatnonzero(is_first)
    if len(starts) == len(order):  # one session each
        return MetricRows(group_of, rows.metrics, rows.values, rows.steps, rows.wall_times)

    counts = np.diff(np.append(starts, len(order)))
    return MetricRows(
        group_of[starts],
        rows.metrics[starts],
        _means(rows.values, starts, counts),
        _floored_means(rows.steps, starts, counts),
        _means(rows.wall_times, starts, counts),
    )


def _means(values: Float64s, starts: Int64s, counts: Int64s) -> Float64s:
    """Return the mean of each slice; NaN and infinities are as in a sum."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums: Float64s = np.add.reduceat(values, starts)
        means: Float64s = sums / counts
        if not np.isfinite(sums).all():  # the sum may overflow where the mean does not
            parts = values / np.repeat(counts, counts)
            means = np.where(np.isfinite(sums), means, np.add.reduceat(parts, starts))
    return means


def _floored_means(steps: Int64s, starts: Int64s, counts: Int64s) -> Int64s:
    """Return the mean of each slice, rounded down, without overflow of int64."""
    divisors = np.repeat(counts, counts)
    quotients = np.add.reduceat(steps // divisors, starts)
    remainders = np.add.reduceat(steps % divisors, starts)
    floored: Int64s = quotients + remainders // counts
    return floored


def choose_representatives(
    groups: SessionGroups, measured: MetricRows, aggregation: AggregationType
) -> Int64s:
    """Return the session of each group whose metrics are the group's.

    It is the session with the least, the greatest or the lower middle measurement, NaN left out;
    among equal ones, the first by name. Without any, the first session by name.

    Args:
        groups: The groups.
        measured: The last values of the aggregation metric, at most one per session.
        aggregation: AGGREGATION_MIN, AGGREGATION_MAX or AGGREGATION_MEDIAN.
    """
    chosen = groups.first_members.copy()
    group_of = groups.group_of[measured.owners]
    usable = (group_of >= 0) & ~np.isnan(measured.values)
    group_of, rows = group_of[usable], measured.select(usable)
    sign = -1.0 if aggregation is AggregationType.AGGREGATION_MAX else 1.0
    order = np.lexsort((rows.owners, rows.values * sign, group_of))
    with_rows, starts, counts = np.unique(group_of[order], return_index=True, return_counts=True)
    is_median = aggregation is AggregationType.AGGREGATION_MEDIAN
    positions = starts + ((counts - 1) // 2 if is_median else 0)
    chosen[with_rows] = rows.owners[order][positions]
    return chosen


def metric_column(rows: MetricRows, metric: int, groups: int) -> tuple[Float64s, Booleans]:
    """Return the values of one metric by group, and which groups have one."""
    values, has_value = np.zeros(groups), np.zeros(groups, bool)
    selected = rows.metrics == metric
    values[rows.owners[selected]] = rows.values[selected]
    has_value[rows.owners[selected]] = True
    return values, has_value
