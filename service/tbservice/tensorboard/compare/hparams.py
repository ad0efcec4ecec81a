"""Merge the HParams schemas of several experiments.

TensorBoard takes the first schema that it finds for everybody's and shows its columns alone; without any it makes one
of all sessions.
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
    """One schema with the columns of all: each as the first schema that has it shows it.

    What the schemas say of the experiment itself is the first one's, as in TensorBoard.
    """
    united = Experiment()
    columns: dict[str, list[HParamInfo]] = {}
    metrics: dict[tuple[str, str], MetricInfo] = {}
    if schemas:
        united.CopyFrom(schemas[0])
    for schema in schemas:
        for column in schema.hparam_infos:
            columns.setdefault(column.name, []).append(column)
        for metric in schema.metric_infos:
            metrics.setdefault((metric.name.group, metric.name.tag), metric)
    united.ClearField("hparam_infos")
    united.hparam_infos.extend(_merge_columns(same) for same in columns.values())
    united.ClearField("metric_infos")
    united.metric_infos.extend(metrics.values())
    return united


def _merge_columns(columns: Sequence[HParamInfo]) -> HParamInfo:
    """The first, with a domain that leaves out no value of the others': the page offers its values to filter by."""
    united = HParamInfo()
    united.CopyFrom(columns[0])
    united.differs = any(column.differs for column in columns)
    types = {column.type for column in columns}
    domains = {column.WhichOneof("domain") for column in columns}
    if len(types) > 1:
        united.type = DATA_TYPE_UNSET if DATA_TYPE_UNSET in types else DATA_TYPE_STRING
    if len(types) > 1 or len(domains) > 1:
        united.ClearField("domain_interval")
        united.ClearField("domain_discrete")
    elif domains == {"domain_interval"}:
        united.domain_interval.min_value = min(
            column.domain_interval.min_value for column in columns
        )
        united.domain_interval.max_value = max(
            column.domain_interval.max_value for column in columns
        )
    elif domains == {"domain_discrete"}:
        _add_missing_values(
            united, (value for column in columns[1:] for value in column.domain_discrete.values)
        )
    return united


def _add_missing_values(column: HParamInfo, values: Iterable[object]) -> None:
    for value in values:
        if value not in column.domain_discrete.values:
            column.domain_discrete.values.append(value)
