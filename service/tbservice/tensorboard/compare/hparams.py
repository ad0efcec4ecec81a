"""Merge the HParams schemas of several experiments.

TensorBoard expects one schema (`Experiment` of `tensorboard/plugins/hparams/api.proto`) for all
sessions: it uses the first that it finds, and computes one from the sessions if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorboard.plugins.hparams.api_pb2 import (
    DATA_TYPE_STRING,
    DATA_TYPE_UNSET,
    Experiment,
    HParamInfo,
    MetricInfo,
)


def merge_schemas(schemas: Sequence[Experiment]) -> Experiment:
    """Return one schema with the columns and metrics of all, without duplicates, in their order.

    A column's display name and description are those of the first schema that has it; its domain
    is the union. All other fields of the experiment are the first schema's, as in TensorBoard.
    """
    merged = Experiment()
    columns: dict[str, list[HParamInfo]] = {}
    metrics: dict[tuple[str, str], MetricInfo] = {}
    if schemas:
        merged.CopyFrom(schemas[0])

    for schema in schemas:
        for column in schema.hparam_infos:
            columns.setdefault(column.name, []).append(column)
        for metric in schema.metric_infos:
            metrics.setdefault((metric.name.group, metric.name.tag), metric)

    merged.ClearField("hparam_infos")
    merged.hparam_infos.extend(_merge_columns(same_name) for same_name in columns.values())
    merged.ClearField("metric_infos")
    merged.metric_infos.extend(metrics.values())
    return merged


def _merge_columns(columns: Sequence[HParamInfo]) -> HParamInfo:
    """Return the first column with the union of all domains: the page filters by their values.

    Columns of different types become strings; a domain that cannot be merged is dropped.
    """
    merged = HParamInfo()
    merged.CopyFrom(columns[0])
    merged.differs = any(column.differs for column in columns)

    types = {column.type for column in columns}
    domains = {column.WhichOneof("domain") for column in columns}
    if len(types) > 1:
        merged.type = DATA_TYPE_UNSET if DATA_TYPE_UNSET in types else DATA_TYPE_STRING
    if len(types) > 1 or len(domains) > 1:
        merged.ClearField("domain_interval")
        merged.ClearField("domain_discrete")
    elif domains == {"domain_interval"}:
        merged.domain_interval.min_value = min(
            column.domain_interval.min_value for column in columns
        )
        merged.domain_interval.max_value = max(
            column.domain_interval.max_value for column in columns
        )
    elif domains == {"domain_discrete"}:
        _add_missing_values(
            merged, (value for column in columns[1:] for value in column.domain_discrete.values)
        )
    return merged


def _add_missing_values(column: HParamInfo, values: Iterable[object]) -> None:
    for value in values:
        if value not in column.domain_discrete.values:
            column.domain_discrete.values.append(value)
