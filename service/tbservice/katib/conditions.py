"""The condition of a trial, and the status of the session that it is in TensorBoard."""

from __future__ import annotations

import enum
from typing import Final

from tbservice.katib.katib_pb2 import Trial
from tbservice.katib.metric_values import parse_number
from tbservice.types.series import SessionStatus


class Condition(enum.IntEnum):
    """The conditions of Katib 0.14 and later (`TrialStatus.TrialConditionType`)."""

    CREATED = 0
    RUNNING = 1
    SUCCEEDED = 2
    KILLED = 3
    FAILED = 4
    METRICS_UNAVAILABLE = 5
    EARLY_STOPPED = 6
    UNKNOWN = 7


_STATUSES: Final = {
    Condition.SUCCEEDED: SessionStatus.SUCCESS,
    Condition.EARLY_STOPPED: SessionStatus.SUCCESS,
    Condition.KILLED: SessionStatus.FAILURE,
    Condition.FAILED: SessionStatus.FAILURE,
    Condition.METRICS_UNAVAILABLE: SessionStatus.FAILURE,
}


def read_condition(trial: Trial, objective: str) -> Condition:
    """Return the condition of a trial in a request, by the numbers of all versions of Katib.

    Versions before 0.14 send 5 for early stopped trials, which newer ones send as 6; their 6 means
    unknown, and the newer 5, metrics unavailable, is not sent. So either means an early stopped
    trial if it has a number for the objective, and nothing otherwise.
    """
    number = int(trial.status.condition)
    if number in {Condition.METRICS_UNAVAILABLE, Condition.EARLY_STOPPED}:
        values = [
            metric.value for metric in trial.status.observation.metrics if metric.name == objective
        ]
        is_observed = any(parse_number(value) is not None for value in values)
        return Condition.EARLY_STOPPED if is_observed else Condition.UNKNOWN
    return Condition(number) if number in set(Condition) else Condition.UNKNOWN


def is_final(condition: Condition | None) -> bool:
    """Return whether the trial has ended."""
    return condition in _STATUSES


def get_status(condition: Condition | None) -> SessionStatus | None:
    """Return how a session ended; None if it has not, or if nobody knows."""
    return None if condition is None else _STATUSES.get(condition)
