"""DARTS: format the request for the trial, which searches the architecture itself."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from tbservice import limits
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.settings import Rule
from tbservice.katib.suggestions.texts import parse_number, shown

_DEFAULTS: Final[dict[str, Any]] = {
    "num_epochs": 50,
    "w_lr": 0.025,
    "w_lr_min": 0.001,
    "w_momentum": 0.9,
    "w_weight_decay": 3e-4,
    "w_grad_clip": 5.0,
    "alpha_lr": 3e-4,
    "alpha_weight_decay": 1e-3,
    "batch_size": 128,
    "num_workers": 4,
    "init_channels": 16,
    "print_step": 50,
    "num_nodes": 4,
    "stem_multiplier": 3,
}
"""Katib's settings of a trial and their defaults."""

_RATE: Final = Rule(float, lambda x: x >= 0, "{name} should be greater than or equal to zero")
_COUNT: Final = Rule(int, lambda n: n >= 1, "{name} should be greater than or equal to one")

_RULES: Final = {
    "num_epochs": Rule(int, lambda n: n > 0, "{name} should be greater than zero"),
    "w_lr": _RATE,
    "w_lr_min": _RATE,
    "alpha_lr": _RATE,
    "w_weight_decay": _RATE,
    "alpha_weight_decay": _RATE,
    "w_momentum": _RATE,
    "w_grad_clip": _RATE,
    "batch_size": Rule(
        lambda text: 1 if text == "None" else int(text), _COUNT.is_valid, _COUNT.refusal
    ),
    "num_workers": Rule(int, lambda n: n >= 0, "{name} should be greater than or equal to zero"),
    "init_channels": _COUNT,
    "print_step": _COUNT,
    "num_nodes": _COUNT,
    "stem_multiplier": _COUNT,
}


def check(spec: pb.ExperimentSpec) -> None:
    """Refuse operations without parameters, and settings that break Katib's rules.

    Unknown settings are allowed, as in Katib: the trial gets them.

    Raises:
        Invalid: With Katib's text.
    """
    for operation in spec.nas_config.operations.operation:
        _check_operation(operation)
    for setting in spec.algorithm.algorithm_settings:
        if setting.name in _RULES:
            _RULES[setting.name].read(setting)


def propose(spec: pb.ExperimentSpec) -> list[tuple[str, str]]:
    """Return the assignments of every trial: settings, search space and number of layers.

    Raises:
        Invalid: An operation has no parameter, or there are too many items.
    """
    settings = dict(_DEFAULTS)
    for setting in spec.algorithm.algorithm_settings:
        settings[setting.name] = None if setting.value == "None" else setting.value
    return [
        ("algorithm-settings", _as_text(settings)),
        ("search-space", _as_text(_operations(spec.nas_config.operations.operation))),
        ("num-layers", str(spec.nas_config.graph_config.num_layers)),
    ]


def _as_text(value: Any) -> str:
    """Return JSON with single quotes, which Katib's trial images take as an argument."""
    return json.dumps(value).replace('"', "'")


def _operations(operations: Iterable[pb.Operation]) -> list[str]:
    names: list[str] = []
    for operation in operations:
        if operation.operation_type == "skip_connection":
            names.append(operation.operation_type)
            continue
        if not operation.parameter_specs.parameters:
            raise Invalid(_refusal("Missing ParameterConfigs in Operation", operation))
        sizes = operation.parameter_specs.parameters[0].feasible_space.list
        names += [f"{operation.operation_type}_{size}x{size}" for size in sizes]
        if len(names) > limits.SUGGESTION_LIST_ITEMS_MAX:
            raise Invalid(f"more than {limits.SUGGESTION_LIST_ITEMS_MAX} operations")
    return names


def _refusal(text: str, message: pb.Operation | pb.ParameterSpec) -> str:
    return f"{text}:\n{shown(str(message))}"


def _check_operation(operation: pb.Operation) -> None:
    if not operation.operation_type:
        raise Invalid(_refusal("Missing operationType in Operation", operation))
    if not operation.parameter_specs.parameters:
        raise Invalid(_refusal("Missing ParameterConfigs in Operation", operation))
    for parameter in operation.parameter_specs.parameters:
        _check_parameter(parameter)


def _check_parameter(parameter: pb.ParameterSpec) -> None:
    space, place = parameter.feasible_space, "ParameterConfig.feasibleSpace"
    if not parameter.name:
        raise Invalid(_refusal("Missing Name in ParameterConfig", parameter))
    if not parameter.parameter_type:
        raise Invalid(_refusal("Missing ParameterType in ParameterConfig", parameter))
    if parameter.parameter_type in {pb.CATEGORICAL, pb.DISCRETE} and not space.list:
        raise Invalid(_refusal(f"Missing List in {place}", parameter))
    if parameter.parameter_type not in {pb.INT, pb.DOUBLE}:
        return
    if not space.min and not space.max:
        raise Invalid(_refusal(f"Missing Max and Min in {place}", parameter))
    if parameter.parameter_type == pb.DOUBLE:
        step = parse_number(space.step)
        if step is None or not step > 0:
            raise Invalid(_refusal(f"Step parameter should be > 0 in {place}", parameter))
