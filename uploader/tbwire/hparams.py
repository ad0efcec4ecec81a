"""The parser of the hparams plugin's content: experiment summaries, starts and ends of sessions.

The plugin logs no data: everything is in the content of a series' summary metadata
(`hparams.proto`). Values that are null, lists or structs have no type in TensorBoard
(`_protobuf_value_type` of `tensorboard/plugins/hparams/backend_context.py`): they are left out, as
if never logged.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, Union

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Value

from tbwire import hparams_pb2
from tbwire.messages import parse
from tbwire.tensorboard_pb2 import SummaryMetadata

_Enum = TypeVar("_Enum", bound=enum.IntEnum)

PLUGIN: Final = "hparams"

EXPERIMENT_TAG: Final = "_hparams_/experiment"
SESSION_START_TAG: Final = "_hparams_/session_start_info"
SESSION_END_TAG: Final = "_hparams_/session_end_info"
"""The tags of the plugin's series, of `tensorboard/plugins/hparams/metadata.py`."""

HparamValue = Union[str, float, bool]
"""The value of a hyperparameter; every number is a float64."""


class Status(enum.IntEnum):
    """Enum `Status` of `tensorboard/plugins/hparams/api.proto`."""

    STATUS_UNKNOWN = 0
    STATUS_SUCCESS = 1
    STATUS_FAILURE = 2
    STATUS_RUNNING = 3


class HparamType(enum.IntEnum):
    """Enum `DataType` of `tensorboard/plugins/hparams/api.proto`."""

    DATA_TYPE_UNSET = 0
    DATA_TYPE_STRING = 1
    DATA_TYPE_BOOL = 2
    DATA_TYPE_FLOAT64 = 3


class DatasetType(enum.IntEnum):
    """Enum `DatasetType` of `tensorboard/plugins/hparams/api.proto`."""

    DATASET_UNKNOWN = 0
    DATASET_TRAINING = 1
    DATASET_VALIDATION = 2


class MalformedHparams(ValueError):
    """The content is not a message of the hparams plugin."""


@dataclass(frozen=True)
class Interval:
    """The closed interval [min_value, max_value]."""

    min_value: float
    max_value: float


Domain = Union[tuple[HparamValue, ...], Interval, None]
"""The values that a hyperparameter can have: a discrete set, an interval, or all of its type."""


@dataclass(frozen=True)
class DeclaredHparam:
    """A hyperparameter as an experiment summary describes it."""

    name: str
    display_name: str = ""
    description: str = ""
    type: HparamType = HparamType.DATA_TYPE_UNSET
    domain: Domain = None
    differs: bool = False


@dataclass(frozen=True)
class DeclaredMetric:
    """A metric as an experiment summary describes it; (`group`, `tag`) is its identity."""

    group: str
    tag: str
    display_name: str = ""
    description: str = ""
    dataset_type: DatasetType = DatasetType.DATASET_UNKNOWN


@dataclass(frozen=True)
class ExperimentSummary:
    """Declaration of an experiment by a writer; times in seconds since the epoch, 0 if unknown."""

    name: str = ""
    description: str = ""
    user: str = ""
    time_created: float = 0.0
    hparams: tuple[DeclaredHparam, ...] = ()
    metrics: tuple[DeclaredMetric, ...] = ()


@dataclass(frozen=True)
class SessionStart:
    """The start of a session, with its hyperparameters; the time is 0 if unknown."""

    hparams: Mapping[str, HparamValue] = field(default_factory=dict)
    group_name: str = ""
    model_uri: str = ""
    monitor_url: str = ""
    start_time: float = 0.0


@dataclass(frozen=True)
class SessionEnd:
    """The end of a session; the time is 0 if unknown."""

    status: Status = Status.STATUS_UNKNOWN
    end_time: float = 0.0


HparamsRecord = Union[ExperimentSummary, SessionStart, SessionEnd]


def parse_metadata(summary_metadata: bytes) -> HparamsRecord | None:
    """Parse a serialized SummaryMetadata. Raises as `parse_content`."""
    try:
        metadata = parse(SummaryMetadata, summary_metadata)
    except DecodeError as error:
        raise MalformedHparams("not a SummaryMetadata") from error
    return parse_content(metadata.plugin_data.content)


def parse_content(content: bytes) -> HparamsRecord | None:
    """Parse the plugin's content; None if it has none of the three messages.

    Raises MalformedHparams for bytes that are not protobuf of this schema. Enum numbers of later
    versions become the enum's 0.
    """
    try:
        data = parse(hparams_pb2.HParamsPluginData, content)
        kind = data.WhichOneof("data")
        if kind == "session_start_info":
            return _session_start(data.session_start_info)
        if kind == "session_end_info":
            end = data.session_end_info
            return SessionEnd(_known(Status, end.status), end.end_time_secs)
        if kind == "experiment":
            return _summary(parse(hparams_pb2.ExperimentSummary, data.experiment))
    except DecodeError as error:
        raise MalformedHparams("not HParamsPluginData") from error
    return None


def _session_start(info: hparams_pb2.SessionStartInfo) -> SessionStart:
    hparams = {}
    for entry in info.hparams:
        value = to_plain(entry.value)
        if value is not None:
            hparams[entry.key] = value
        else:
            hparams.pop(entry.key, None)  # the last entry of a key is the map's
    return SessionStart(
        hparams, info.group_name, info.model_uri, info.monitor_url, info.start_time_secs
    )


def to_plain(value: Value) -> HparamValue | None:
    """Return a `Value` as a plain one; None for null, a list, a struct, or no value."""
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return value.number_value
    if kind == "string_value":
        return value.string_value
    return value.bool_value if kind == "bool_value" else None


def _summary(experiment: hparams_pb2.ExperimentSummary) -> ExperimentSummary:
    return ExperimentSummary(
        experiment.name,
        experiment.description,
        experiment.user,
        experiment.time_created_secs,
        tuple(_declared_hparam(info) for info in experiment.hparam_infos),
        tuple(_declared_metric(info) for info in experiment.metric_infos),
    )


def _declared_hparam(info: hparams_pb2.HParamInfo) -> DeclaredHparam:
    domain: Domain = None
    kind = info.WhichOneof("domain")
    if kind == "domain_interval":
        domain = Interval(info.domain_interval.min_value, info.domain_interval.max_value)
    elif kind == "domain_discrete":
        domain = plain_values(info.domain_discrete.values)
    return DeclaredHparam(
        info.name,
        info.display_name,
        info.description,
        _known(HparamType, info.type),
        domain,
        info.differs,
    )


def plain_values(values: Iterable[Value]) -> tuple[HparamValue, ...]:
    """Return the values of a ListValue without those that have no type."""
    plain = (to_plain(value) for value in values)
    return tuple(value for value in plain if value is not None)


def _declared_metric(info: hparams_pb2.MetricInfo) -> DeclaredMetric:
    return DeclaredMetric(
        info.name.group,
        info.name.tag,
        info.display_name,
        info.description,
        _known(DatasetType, info.dataset_type),
    )


def _known(numbers: type[_Enum], number: int) -> _Enum:
    try:
        return numbers(number)
    except ValueError:
        return numbers(0)
