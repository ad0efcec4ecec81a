"""Columns and sessions of trials for TensorBoard's HParams plugin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from google.protobuf.struct_pb2 import ListValue, Value

from tbservice.ingest.session_records import SessionFields
from tbservice.katib.conditions import Condition, get_status, is_final, read_condition
from tbservice.katib.katib_pb2 import (
    CATEGORICAL,
    DISCRETE,
    DOUBLE,
    INT,
    MAXIMIZE,
    MINIMIZE,
    Experiment,
    ParameterAssignment,
    ParameterSpec,
    Trial,
)
from tbservice.katib.metric_values import parse_number
from tbservice.katib.reports import Logs
from tbservice.katib.tables.katib_trials import TrialRow
from tbservice.types.series import HparamValue, SessionStatus
from tbwire.hparams import HparamType
from tbwire.hparams_pb2 import (
    ExperimentSummary,
    HParamInfo,
    Interval,
    MetricInfo,
    MetricName,
    SessionStartInfo,
)

_GOALS: Final = {MAXIMIZE: "maximize", MINIMIZE: "minimize"}

_ReadValue = Callable[[str], HparamValue]


def make_summary(experiment: Experiment) -> ExperimentSummary:
    """Return the experiment summary: a column per parameter, and the objective's metrics first."""
    spec = experiment.spec
    objective = spec.objective
    goal = _GOALS.get(objective.type, "optimize")
    tags = dict.fromkeys([objective.objective_metric_name, *objective.additional_metric_names])
    return ExperimentSummary(
        name=experiment.name,
        description=f"{goal} {objective.objective_metric_name} by {spec.algorithm.algorithm_name}",
        hparam_infos=[_make_column(parameter) for parameter in spec.parameter_specs.parameters],
        metric_infos=[MetricInfo(name=MetricName(tag=tag)) for tag in tags if tag],
    )


def _make_column(parameter: ParameterSpec) -> HParamInfo:
    """Return the column of a parameter; without a domain if its bounds are no numbers."""
    space = parameter.feasible_space
    column = HParamInfo(name=parameter.name, type=HparamType.DATA_TYPE_STRING)
    read = _choose_reader(parameter)
    if read is not _keep_text:
        column.type = HparamType.DATA_TYPE_FLOAT64
    if parameter.parameter_type in {DOUBLE, INT}:
        bounds = parse_number(space.min), parse_number(space.max)
        if bounds[0] is not None and bounds[1] is not None:
            column.domain_interval.CopyFrom(Interval(min_value=bounds[0], max_value=bounds[1]))
    elif parameter.parameter_type in {DISCRETE, CATEGORICAL}:
        values = [_make_value(read(text)) for text in space.list]
        column.domain_discrete.CopyFrom(ListValue(values=values))
    return column


def _choose_reader(parameter: ParameterSpec) -> _ReadValue:
    """Return how the values of a parameter are read: as numbers, if all of a list are numbers."""
    if parameter.parameter_type in {DOUBLE, INT}:
        return _read_number
    if parameter.parameter_type == DISCRETE and all(
        parse_number(text) is not None for text in parameter.feasible_space.list
    ):
        return _read_number
    return _keep_text


def _read_number(text: str) -> HparamValue:
    number = parse_number(text)
    return text if number is None else number


def _keep_text(text: str) -> HparamValue:
    return text


def _make_value(value: HparamValue) -> Value:
    return Value(string_value=value) if isinstance(value, str) else Value(number_value=value)


def make_readers(experiment: Experiment) -> Mapping[str, _ReadValue]:
    """Return how the values of each parameter are read, by name."""
    parameters = experiment.spec.parameter_specs.parameters
    return {parameter.name: _choose_reader(parameter) for parameter in parameters}


def encode_assignments(
    assignments: Iterable[ParameterAssignment], readers: Mapping[str, _ReadValue]
) -> bytes:
    """Return the hyperparameters of a trial for its row; of equal names, the last one counts."""
    values = {each.name: each.value for each in assignments}
    info = SessionStartInfo(
        hparams=[
            SessionStartInfo.Hparam(
                key=name, value=_make_value(readers.get(name, _keep_text)(value))
            )
            for name, value in values.items()
        ]
    )
    return info.SerializeToString(deterministic=True)


def decode_assignments(encoded: bytes) -> dict[str, HparamValue]:
    """Return the hyperparameters of a trial's row."""
    return {
        hparam.key: hparam.value.string_value
        if hparam.value.WhichOneof("kind") == "string_value"
        else hparam.value.number_value
        for hparam in SessionStartInfo.FromString(encoded).hparams
    }


def make_fields(
    trial: TrialRow,
    name: str,
    start_time: float | None,
    end_time: float | None,
    *,
    was_inferred: bool = False,
) -> SessionFields:
    """Return the session of a trial as its row says; times in seconds since the epoch.

    A trial that has not ended leaves the end of its session alone, unless that was inferred: then
    the session runs again.
    """
    condition = None if trial.condition is None else Condition(trial.condition)
    status = get_status(condition)
    if status is None and was_inferred:
        status, end_time = SessionStatus.RUNNING, None
    return SessionFields(
        hparams=decode_assignments(trial.assignments),
        group_name=name,
        start_time_secs=start_time,
        status=status,
        end_time_secs=None if status is None else end_time,
    )


def note_report(trial: TrialRow, name: str, logs: Logs) -> SessionFields | None:
    """Set what a report tells of its trial; return what to set of the session, None for nothing.

    Katib asks for no suggestion after its last trials, and so does not tell how they ended. But a
    pull collector reports once, when the training has ended. So a first report that says only
    `unavailable` is a failure: no training sends that, and requests leave such trials out. One that
    has several logs of a metric is taken for an end, unless a request said that the trial runs:
    training code that buffers sends such reports too. If another report follows, the trial runs.
    """
    if trial.log_count and trial.is_inferred:
        trial.condition, trial.is_inferred = Condition.RUNNING, False
        return SessionFields(status=SessionStatus.RUNNING)
    if trial.log_count:
        return None

    condition = None if trial.condition is None else Condition(trial.condition)
    if logs.is_unavailable and not is_final(condition):
        trial.condition, trial.is_inferred = Condition.METRICS_UNAVAILABLE, True
    elif logs.repeats_metric and condition in {None, Condition.CREATED}:
        trial.condition, trial.is_inferred = Condition.SUCCEEDED, True
    start_time = float(logs.wall_times.min()) if trial.request_digest is None else None
    end_time = float(logs.wall_times.max()) if trial.is_inferred else None
    return make_fields(trial, name, start_time, end_time)


def note_request(row: TrialRow, experiment: Experiment, trial: Trial) -> None:
    """Set the condition of a trial, unless what is known is later.

    A trial that a request says is running has not ended, though its report looked like it.
    """
    objective = trial.spec.objective if trial.spec.HasField("objective") else None
    objective = objective or experiment.spec.objective
    condition = read_condition(trial, objective.objective_metric_name)
    row.is_bound = True
    known = None if row.condition is None else Condition(row.condition)
    is_told = is_final(known) and not row.is_inferred
    is_guess = known is Condition.SUCCEEDED and row.is_inferred
    is_open = not is_final(known) or (is_guess and condition is Condition.RUNNING)
    if is_final(condition):
        # Without Kubernetes, an early stopped trial succeeds in the end.
        if not (is_told and known is Condition.EARLY_STOPPED and condition is Condition.SUCCEEDED):
            row.condition, row.is_inferred = condition, False
    elif is_open and (condition is not Condition.UNKNOWN or known is None):
        row.condition, row.is_inferred = condition, False
