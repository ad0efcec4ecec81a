"""The HParams API over a source, a single experiment or a comparison of several."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tbservice import limits
from tbservice.errors import NotFound, TooLarge
from tbservice.hparams.encoding import MetricValue, SessionGroupRow, SessionRow
from tbservice.hparams.metric_rows import (
    MetricRows,
    aggregate,
    choose_representatives,
    keep_earlier,
    metric_column,
    no_rows,
)
from tbservice.hparams.owners import metric_run
from tbservice.hparams.requests import (
    AggregationType,
    ColumnParams,
    ExperimentRequest,
    MetricEvalsRequest,
    MetricId,
    SessionGroupsRequest,
    SortOrder,
)
from tbservice.hparams.schema import (
    Completion,
    Schema,
    complete,
    list_hparams,
    list_metrics,
)
from tbservice.hparams.selection import (
    Column,
    HparamColumn,
    MetricColumn,
    filter_groups,
    sort_groups,
)
from tbservice.hparams.session_reader import SessionReader, open_sessions
from tbservice.hparams.session_table import (
    SessionGroups,
    SessionTable,
    agreed_hparams,
    allows_all,
    count_values,
    depends_on_age,
    group_sessions,
    group_values,
    separate_sessions,
    session_values,
)
from tbservice.hparams.values import list_distinct
from tbservice.reading.comparison import Source
from tbservice.reading.source import ExperimentReader
from tbservice.types.identifiers import Int64s
from tbservice.types.sampling import Selection
from tbwire.hparams import DeclaredHparam, HparamType, HparamValue

HPARAMS_CELL_ITEMS_MAX: Final = 5_000_000
"""Values (cells) compared for one request: sessions, times columns to filter and to sort by.

Each takes up to 2 microseconds and 12 bytes. So 100,000 sessions can have 50 such columns.
"""

HPARAMS_EVALS_POINTS: Final = 1_000
"""Points of a metric in one response: as many as the stock page shows of a series."""

_SCALARS = "scalars"
_MetricValues = Mapping[int, Sequence[MetricValue]]


def check_experiment_name(source: Source, name: str) -> None:
    """Raise NotFound if a request names another experiment, whether or not that exists."""
    names = {source.experiment_id}
    if isinstance(source, ExperimentReader):  # the page of an attempt may name the experiment
        names.add(source.grant.experiment_id)
    if name and name not in names:
        raise NotFound("there is no such experiment, or it is not yours")


def get_experiment(
    source: Source, request: ExperimentRequest, completion: Completion | None = None
) -> Schema:
    """Return the experiment's columns: declared and seen hyperparameters and metrics.

    `completion` is the rule for types and domains of hyperparameters, None for that of the API.

    Raises NotFound for the name of another experiment, TooLarge as `open_sessions`.
    """
    check_experiment_name(source, request.experiment_name)
    sessions = open_sessions(source)
    declared = sessions.declared
    metrics = list_metrics(declared, sessions.list_metrics()) if request.includes_metrics else []
    hparams = list_hparams(declared, _collect_values(sessions.table), completion)
    if request.values_max is not None:
        hparams = _first_columns(hparams, count_values(sessions.table), request.values_max)
    return Schema(
        source.experiment_id,
        declared.name,
        declared.description,
        declared.user,
        declared.time_created,
        hparams[: request.hparams_limit],
        metrics,
    )


def _collect_values(table: SessionTable) -> dict[str, list[HparamValue]]:
    """Return the values of each hyperparameter; those of sessions with the same names at once."""
    by_names: defaultdict[int, list[tuple[HparamValue, ...]]] = defaultdict(list)
    names = {id(start.names): start.names for start in table.starts}
    for start in table.starts:
        by_names[id(start.names)].append(start.values)
    seen: defaultdict[str, list[HparamValue]] = defaultdict(list)
    for key, rows in by_names.items():
        for name, values in zip(names[key].names, zip(*rows, strict=True), strict=True):
            seen[name] += list_distinct(values)
    return seen


def _first_columns(
    hparams: list[DeclaredHparam], counts: Mapping[str, int], values_max: int
) -> list[DeclaredHparam]:
    """Return the first columns that have at most that many values together."""
    totals = np.cumsum([counts[column.name] for column in hparams], dtype=np.int64)
    return hparams[: int(np.searchsorted(totals, values_max, "right"))]


@dataclass(frozen=True, slots=True)
class SessionGroupPage:
    """A page of session groups, and how many there are on all pages."""

    groups: Sequence[SessionGroupRow]
    total_size: int


def list_session_groups(
    source: Source, request: SessionGroupsRequest, completion: Completion = complete
) -> SessionGroupPage:
    """Return a page of the session groups that pass the request's filters, in its order.

    `completion` is the rule for types of columns, which decide on the filters that they have.

    Raises:
        NotFound: The request names another experiment.
        Invalid: A filter does not fit the type of its column.
        TooLarge: As `open_sessions` and `filter_groups`; or over `HPARAMS_CELL_ITEMS_MAX` values
            are to be compared, or over `HPARAMS_RESPONSE_ITEMS_MAX` to be returned.
    """
    check_experiment_name(source, request.experiment_name)
    sessions = open_sessions(source)
    is_by_end = not allows_all(request.allowed_statuses)
    is_by_age = is_by_end and depends_on_age(request.allowed_statuses)
    _read_statuses(sessions, range(len(sessions.table)), with_ends=is_by_end, with_ages=is_by_age)
    allowed = sessions.table.list_allowed(request.allowed_statuses)
    group = separate_sessions if request.is_per_session else group_sessions
    groups = group(sessions.table, allowed)

    grouping = _Grouping(sessions, groups, request, completion)
    chosen = grouping.choose()
    page = chosen[request.start_index :][: request.slice_size].tolist()
    members = [session for group in page for session in groups.members(group)]
    # The values that sessions were chosen by are not read again: they may be others by now.
    _read_statuses(sessions, members, with_ends=not is_by_end, with_ages=not is_by_age)
    return SessionGroupPage(grouping.render(page, members), len(chosen))


def _read_statuses(
    sessions: SessionReader, members: Sequence[int], *, with_ends: bool, with_ages: bool
) -> None:
    if members and with_ends:
        sessions.read_ends(members)
    if members and with_ages:
        sessions.read_ages(members)


class _Grouping:
    """The groups of one request: reads what its columns and its page need."""

    def __init__(
        self,
        sessions: SessionReader,
        groups: SessionGroups,
        request: SessionGroupsRequest,
        completion: Completion,
    ) -> None:
        self._sessions = sessions
        self._groups = groups
        self._request = request
        self._complete = completion
        self._representatives: Int64s | None = None
        self._chosen_by: tuple[MetricRows, list[MetricId]] = no_rows(), []

    def choose(self) -> Int64s:
        """Return the groups that pass all filters, in order."""
        filters = [params for params in self._request.columns if params.is_filter]
        orders = [
            params
            for params in self._request.columns
            if params.order is not SortOrder.ORDER_UNSPECIFIED
        ]
        _check_cells(len(self._sessions.table) * (len(filters) + len(orders)))
        columns = self._read_columns([*filters, *orders])
        passing = filter_groups(
            filters, [columns[params.column] for params in filters], len(self._groups)
        )
        return sort_groups(orders, [columns[params.column] for params in orders], passing)

    def _read_columns(self, params: Sequence[ColumnParams]) -> dict[MetricId | str, Column]:
        """Return the columns by name; sets the representative session of each group."""
        names = dict.fromkeys(each.column for each in params)
        metrics = [name for name in names if isinstance(name, MetricId)]
        by_session, codes = self._read_metrics(metrics)
        rows = self._aggregate(by_session)

        columns: dict[MetricId | str, Column] = {}
        for name in names:
            if isinstance(name, MetricId):
                metric = codes.get(name, -1)
                columns[name] = MetricColumn(*metric_column(rows, metric, len(self._groups)))
            else:
                columns[name] = self._hparam_column(name)
        return columns

    def _read_metrics(self, metrics: Sequence[MetricId]) -> tuple[MetricRows, dict[MetricId, int]]:
        """Return the last points of some metrics, and the number of each metric in the rows."""
        request = self._request
        is_mean = request.aggregation is AggregationType.AGGREGATION_AVG
        wanted = {*metrics} if is_mean else {*metrics, request.aggregation_metric}
        rows, found = self._sessions.read_metrics(wanted) if wanted else (no_rows(), [])
        self._chosen_by = rows, found
        codes = {metric: code for code, metric in enumerate(found)}
        if not is_mean:
            measured = rows.select(rows.metrics == codes.get(request.aggregation_metric, -1))
            self._representatives = choose_representatives(
                self._groups, measured, request.aggregation
            )
        return rows, codes

    def _aggregate(self, rows: MetricRows) -> MetricRows:
        return aggregate(rows, self._groups, self._request.aggregation, self._representatives)

    def _hparam_column(self, name: str) -> HparamColumn:
        by_session = session_values(self._sessions.table, name)
        declared = {column.name: column for column in self._sessions.declared.hparams}
        seen = _one_of_each_type(by_session)
        type_ = HparamType.DATA_TYPE_UNSET
        if name in declared or seen:
            type_ = self._complete(declared.get(name) or DeclaredHparam(name), seen).type
        values = group_values(self._groups, by_session)
        return HparamColumn([each if self._has(each) else None for each in values], type_)

    def _has(self, value: HparamValue | None) -> bool:
        """Return whether the request takes this for a value, and not for a missing one."""
        return not (
            self._request.is_finite_only and isinstance(value, float) and not math.isfinite(value)
        )

    def render(self, page: Sequence[int], members: Sequence[int]) -> list[SessionGroupRow]:
        """Return groups with their sessions (`members`) and, if requested, all metrics."""
        starts = self._sessions.table.starts
        hparams = {group: self._hparams(group) for group in page}
        count = sum(map(len, hparams.values()))
        _check_response(count)

        of_sessions: _MetricValues = {}
        of_groups: _MetricValues = {}
        if self._request.includes_metrics and members:
            rows, metrics = keep_earlier(
                *self._sessions.read_all_metrics(members), *self._chosen_by
            )
            is_member = np.zeros(len(starts), bool)
            is_member[members] = True
            rows = rows.select(is_member[rows.owners])
            _check_response(count + 2 * len(rows.owners))
            ranks = self._rank_metrics(metrics)
            of_sessions = _by_owner(rows, metrics, ranks)
            of_groups = _by_owner(self._aggregate(rows), metrics, ranks)
        return [
            SessionGroupRow(
                self._groups.names[group],
                hparams[group],
                of_groups.get(group, ()),
                [self._session(each, of_sessions) for each in self._groups.members(group)],
                self._monitor_url(group),
            )
            for group in page
        ]

    def _monitor_url(self, group: int) -> str:
        starts = self._sessions.table.starts
        urls = (starts[each].monitor_url for each in self._groups.members(group))
        return next(filter(None, urls), "")

    def _hparams(self, group: int) -> dict[str, HparamValue]:
        table, included = self._sessions.table, self._request.hparams
        hparams = agreed_hparams([table.starts[each] for each in self._groups.members(group)])
        return {
            name: value
            for name, value in hparams.items()
            if (included is None or name in included) and self._has(value)
        }

    def _rank_metrics(self, metrics: Sequence[MetricId]) -> Int64s:
        """Return the rank of each metric in the order of the experiment's metrics."""
        ordered = list_metrics(self._sessions.declared, metrics)
        rank_of = {(metric.group, metric.tag): rank for rank, metric in enumerate(ordered)}
        return np.array([rank_of[metric] for metric in metrics], np.int64)

    def _session(self, session: int, metric_values: _MetricValues) -> SessionRow:
        table = self._sessions.table
        start, end = table.starts[session], table.ends.get(session)
        return SessionRow(
            table.names[session],
            start.start_time,
            0.0 if end is None else end.end_time,
            table.status(session),
            start.model_uri,
            metric_values.get(session, ()),
            start.monitor_url,
        )


def _one_of_each_type(values: Sequence[HparamValue | None]) -> list[HparamValue]:
    by_type = dict(zip(map(type, values), values, strict=True))
    return [value for value in by_type.values() if value is not None]


def _by_owner(
    rows: MetricRows, metrics: Sequence[MetricId], ranks: Int64s
) -> dict[int, list[MetricValue]]:
    by_owner: dict[int, list[MetricValue]] = {}
    ordered = rows.select(np.lexsort((ranks[rows.metrics], rows.owners)))
    columns = zip(
        ordered.owners.tolist(),
        ordered.metrics.tolist(),
        ordered.values.tolist(),
        ordered.steps.tolist(),
        ordered.wall_times.tolist(),
        strict=True,
    )
    for owner, metric, *point in columns:
        by_owner.setdefault(owner, []).append(MetricValue(metrics[metric], *point))
    return by_owner


def _check_cells(count: int) -> None:
    if count > HPARAMS_CELL_ITEMS_MAX:
        limit = f"the limit of {HPARAMS_CELL_ITEMS_MAX} (hparams_cell_items_max)"
        raise TooLarge(
            f"filtering and sorting would compare {count} values, over {limit}; name fewer columns"
        )


def _check_response(count: int) -> None:
    if count > limits.HPARAMS_RESPONSE_ITEMS_MAX:
        limit = f"the limit of {limits.HPARAMS_RESPONSE_ITEMS_MAX} (hparams_response_items_max)"
        raise TooLarge(f"the response has {count} values, over {limit}; request a smaller slice")


def list_metric_evals(
    source: Source, request: MetricEvalsRequest
) -> list[tuple[float, int, float]]:
    """Return wall time, step and value of at most `HPARAMS_EVALS_POINTS` points of a metric.

    Raises NotFound if the session has no such metric, or for the name of another experiment.
    """
    check_experiment_name(source, request.experiment_name)
    run, tag = metric_run(request.session_name, request.metric.group), request.metric.tag
    selection = Selection(plugin=_SCALARS, runs=frozenset({run}), tags=frozenset({tag}))
    samples = source.read_scalars(selection, HPARAMS_EVALS_POINTS)
    if not samples:
        raise NotFound("the session has no such metric")
    _, sample = samples[0]
    return list(
        zip(sample.wall_times.tolist(), sample.steps.tolist(), sample.values.tolist(), strict=True)
    )
