"""`list_hyperparameters` and `read_hyperparameters` of TensorBoard's data provider.

They answer by the rules of `docs/hparams.md`, as the routes do. None of the plugins that we serve
calls them: the native HParams routes replace those that would.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from tensorboard.data import provider
from tensorboard.data.provider import HyperparameterDomainType as DomainType
from tensorboard.data.provider import HyperparameterFilterType as FilterType

from tbservice import limits, patterns
from tbservice.errors import Invalid
from tbservice.hparams import use_cases
from tbservice.hparams.encoding import SessionGroupRow
from tbservice.hparams.requests import (
    ColumnParams,
    DiscreteFilter,
    ExperimentRequest,
    Filter,
    RegexpFilter,
    SessionGroupsRequest,
    SortOrder,
)
from tbservice.reading.source import Source
from tbwire.hparams import DeclaredHparam, HparamType, HparamValue, Interval, Status

_DISCRETE: Final = {
    str: DomainType.DISCRETE_STRING,
    bool: DomainType.DISCRETE_BOOL,
    float: DomainType.DISCRETE_FLOAT,
}
_DECLARED: Final = {
    HparamType.DATA_TYPE_STRING: DomainType.DISCRETE_STRING,
    HparamType.DATA_TYPE_BOOL: DomainType.DISCRETE_BOOL,
    HparamType.DATA_TYPE_FLOAT64: DomainType.DISCRETE_FLOAT,
}


def list_hyperparameters(source: Source, limit: int | None) -> provider.ListHyperparametersResult:
    """Return the columns, all or the first `limit`, and all session groups without values."""
    schema = use_cases.get_experiment(
        source, ExperimentRequest("", includes_metrics=False, hparams_limit=limit or None)
    )
    return provider.ListHyperparametersResult(
        hyperparameters=[_hyperparameter(column) for column in schema.hparams],
        session_groups=_list_groups(source, [], frozenset()),
    )


def read_hyperparameters(
    source: Source,
    filters: Collection[provider.HyperparameterFilter],
    sort: Sequence[provider.HyperparameterSort],
    hparams_to_include: Collection[str] | None,
) -> list[provider.HyperparameterSessionGroup]:
    """Return the session groups that pass the filters, in order, with their hyperparameters.

    TensorBoard sends a sort by "" for a metric: no group has that, and the order stays.
    """
    columns = [
        ColumnParams(f"filters[{index}]", wanted.hyperparameter_name, filter=_filter(wanted))
        for index, wanted in enumerate(filters)
    ]
    columns += [
        ColumnParams(f"sort[{index}]", wanted.hyperparameter_name, _order(wanted))
        for index, wanted in enumerate(sort)
    ]
    included = None
    if hparams_to_include is not None:
        names = (column.column for column in columns)
        included = frozenset(hparams_to_include) | {name for name in names if isinstance(name, str)}
    return _list_groups(source, columns, included)


def _list_groups(
    source: Source, columns: Sequence[ColumnParams], included: frozenset[str] | None
) -> list[provider.HyperparameterSessionGroup]:
    request = SessionGroupsRequest(
        allowed_statuses=frozenset(Status),
        columns=columns,
        slice_size=limits.HPARAMS_RESPONSE_ITEMS_MAX,
        includes_metrics=False,
        hparams=included,
    )
    return [_group(row) for row in use_cases.list_session_groups(source, request).groups]


def _group(row: SessionGroupRow) -> provider.HyperparameterSessionGroup:
    """Return a group; TensorBoard takes the experiment's id, if there is one, for a prefix."""
    return provider.HyperparameterSessionGroup(
        root=_run(row.name),
        sessions=[_run(session.name) for session in row.sessions],
        hyperparameter_values=[_value(name, value) for name, value in row.hparams.items()],
    )


def _run(name: str) -> provider.HyperparameterSessionRun:
    return provider.HyperparameterSessionRun(experiment_id="", run=name)


def _value(name: str, value: HparamValue) -> provider.HyperparameterValue:
    type_ = DomainType.INTERVAL if isinstance(value, float) else _DISCRETE[type(value)]
    return provider.HyperparameterValue(name, type_, value)


def _hyperparameter(column: DeclaredHparam) -> provider.Hyperparameter:
    type_: DomainType | None = None
    domain: Any = column.domain
    if isinstance(domain, Interval):
        type_, domain = DomainType.INTERVAL, (domain.min_value, domain.max_value)
    elif column.type in _DECLARED:
        type_, domain = _DECLARED[column.type], domain or ()
    return provider.Hyperparameter(
        column.name, column.display_name or column.name, type_, domain, column.differs
    )


def _filter(wanted: provider.HyperparameterFilter) -> Filter:
    if wanted.filter_type is FilterType.INTERVAL:
        return Interval(*wanted.filter)
    if wanted.filter_type is FilterType.DISCRETE:
        return DiscreteFilter(tuple(wanted.filter))
    try:
        return RegexpFilter(patterns.compile_pattern(wanted.filter))
    except ValueError as error:
        raise Invalid(str(error)) from error


def _order(wanted: provider.HyperparameterSort) -> SortOrder:
    is_ascending = wanted.sort_direction is provider.HyperparameterSortDirection.ASCENDING
    return SortOrder.ORDER_ASC if is_ascending else SortOrder.ORDER_DESC
