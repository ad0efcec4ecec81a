"""The columns of an experiment: what experiment summaries declare, and what sessions have.

TensorBoard takes the first summary as it is, or computes the columns if there is none. Here both
are united, so that what is logged later appears.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tbservice.hparams.requests import MetricId
from tbservice.hparams.values import common_type, list_distinct, to_text
from tbwire.hparams import (
    DeclaredHparam,
    DeclaredMetric,
    Domain,
    ExperimentSummary,
    HparamType,
    HparamValue,
    Interval,
)


@dataclass(frozen=True, slots=True)
class Schema:
    """An experiment: its id, its name in a summary, its hyperparameters and its metrics."""

    name: str
    declared_name: str
    description: str
    user: str
    time_created: float
    hparams: Sequence[DeclaredHparam]
    metrics: Sequence[DeclaredMetric]


Completion = Callable[[DeclaredHparam, Collection[HparamValue]], DeclaredHparam]
"""A rule for the type and the domain of a column, by what is declared and the values seen."""


@dataclass(frozen=True, slots=True)
class LoggedSummary:
    """An experiment summary with its wall time in seconds and the run that it was logged in."""

    wall_time: float
    run: str
    summary: ExperimentSummary


def merge_summaries(logged: Iterable[LoggedSummary]) -> ExperimentSummary:
    """Return one summary of all.

    A column or metric that several describe is taken from the newest of them; with equal wall
    times, from the last by name of the run. Its place is that in the oldest. The newest
    description, user, name and time that is not empty remains.
    """
    merged = ExperimentSummary()
    hparams: dict[str, DeclaredHparam] = {}
    metrics: dict[tuple[str, str], DeclaredMetric] = {}
    for item in sorted(logged, key=lambda item: (item.wall_time, item.run)):
        summary = item.summary
        merged = ExperimentSummary(
            summary.name or merged.name,
            summary.description or merged.description,
            summary.user or merged.user,
            summary.time_created or merged.time_created,
        )
        hparams |= {column.name: column for column in summary.hparams}
        metrics |= {(metric.group, metric.tag): metric for metric in summary.metrics}
    return replace(merged, hparams=tuple(hparams.values()), metrics=tuple(metrics.values()))


def list_metrics(declared: ExperimentSummary, seen: Iterable[MetricId]) -> list[DeclaredMetric]:
    """Return the declared metrics in their order, then the others by tag and group."""
    known = {(metric.group, metric.tag) for metric in declared.metrics}
    others = sorted({(metric.tag, metric.group) for metric in seen if metric not in known})
    return [*declared.metrics, *(DeclaredMetric(group, tag) for tag, group in others)]


def list_hparams(
    declared: ExperimentSummary,
    seen: Mapping[str, Collection[HparamValue]],
    completion: Completion | None = None,
) -> list[DeclaredHparam]:
    """Return all columns: those that differ first, then by name, as TensorBoard orders them.

    Args:
        declared: The summary.
        seen: The values of each hyperparameter that sessions have, equal ones once or more often.
        completion: The rule for types and domains, `complete` if it is None.
    """
    columns = {column.name: column for column in declared.hparams}
    completed = [
        (completion or complete)(columns.get(name) or DeclaredHparam(name), seen.get(name, ()))
        for name in {**columns, **seen}
    ]
    return sorted(completed, key=lambda column: (not column.differs, column.name))


def complete(column: DeclaredHparam, seen: Iterable[HparamValue]) -> DeclaredHparam:
    """Return a column with type and domain: declared ones are kept, others computed.

    A declared domain without a type says it, too: an interval is of numbers. A column with no type,
    domain and values is a string: the page cannot filter by one without.
    """
    distinct = list_distinct(seen)
    type_ = column.type or _infer_type(column.domain, distinct)
    domain = column.domain if column.domain is not None else compute_domain(type_, distinct)
    return replace(column, type=type_, domain=domain, differs=column.differs or len(distinct) > 1)


def _infer_type(domain: Domain, seen: Iterable[HparamValue]) -> HparamType:
    if isinstance(domain, Interval):
        return HparamType.DATA_TYPE_FLOAT64
    return common_type([*(domain or ()), *seen]) or HparamType.DATA_TYPE_STRING


def compute_domain(type_: HparamType, values: Iterable[HparamValue]) -> Domain:
    """Return the domain of these values in a column of a type; None if it would be empty.

    Numbers have the interval of the finite ones. Booleans have the values that occur. Strings have
    the texts of all values: a column with values of several types is one of strings.
    """
    if type_ is HparamType.DATA_TYPE_FLOAT64:
        numbers = [value for value in values if type(value) is float and math.isfinite(value)]
        return Interval(min(numbers), max(numbers)) if numbers else None
    if type_ is HparamType.DATA_TYPE_BOOL:
        return tuple(sorted({value for value in values if isinstance(value, bool)})) or None
    return tuple(sorted({to_text(value) for value in values})) or None
