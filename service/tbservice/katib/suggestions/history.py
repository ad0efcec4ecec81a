"""Lessons of the trials of a request: points with a value, points under way, points to avoid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.space import Point, Space
from tbservice.katib.suggestions.texts import parse_number

_LEARNED: Final = frozenset(
    {
        pb.TrialStatus.SUCCEEDED,
        pb.TrialStatus.EARLYSTOPPED,
        # EARLYSTOPPED of versions before 0.14. Newer ones never send it, and it has no value then.
        pb.TrialStatus.METRICSUNAVAILABLE,
    }
)
_UNDER_WAY: Final = frozenset({pb.TrialStatus.CREATED, pb.TrialStatus.RUNNING})

_SQUARABLE_MAX: Final = 1e100
"""Loss up to which sums of squares of losses do not overflow."""


@dataclass(frozen=True)
class Observed:
    """A finished trial.

    Attributes:
        point: Its parameters.
        loss: Its objective, negated if it is to be maximized; always finite.
        seconds: How long it ran; None if unknown.
    """

    point: Point
    loss: float
    seconds: float | None


@dataclass(frozen=True)
class History:
    """Trials of an experiment, as samplers see them.

    Attributes:
        observed: Finished trials in the order of their ends, so that later requests only append.
        pending: Points of trials that are created or running.
        used: Points of all trials, failed ones included.
        trials_items: Trials in the request.
    """

    observed: Sequence[Observed]
    pending: Sequence[Point]
    used: frozenset[Point]
    trials_items: int


def read_history(space: Space, objective: pb.ObjectiveSpec, trials: Sequence[pb.Trial]) -> History:
    """Return what the trials teach about a space.

    Trials whose parameters are not those of the space are left out, as are finished ones whose
    objective is missing or no finite number.
    """
    observed: list[tuple[str, str, Observed]] = []
    pending: list[Point] = []
    used: set[Point] = set()
    for trial in trials:
        point = space.parse(assignments_of(trial))
        if point is None:
            continue
        used.add(point)
        condition = trial.status.condition
        if condition in _UNDER_WAY:
            pending.append(point)
        loss = loss_of(trial, objective) if condition in _LEARNED else None
        if loss is not None:
            item = Observed(point, loss, _seconds(trial.status))
            observed.append((trial.status.completion_time, trial.status.start_time, item))

    observed.sort(key=lambda entry: entry[:2])
    return History([item for *_, item in observed], pending, frozenset(used), len(trials))


def assignments_of(trial: pb.Trial) -> dict[str, str]:
    """Return the parameters of a trial by name; the last one of a name wins."""
    return {a.name: a.value for a in trial.spec.parameter_assignments.assignments}


def loss_of(trial: pb.Trial, objective: pb.ObjectiveSpec) -> float | None:
    """Return the trial's objective, negated if it is to be maximized; None if it has none.

    The metric is that of the trial's own objective, as in Katib, or else that of the experiment.
    """
    metric = trial.spec.objective.objective_metric_name or objective.objective_metric_name
    for observation in trial.status.observation.metrics:
        if observation.name == metric:
            value = parse_number(observation.value)
            if value is None or not math.isfinite(value):
                return None
            return -value if objective.type == pb.MAXIMIZE else value
    return None


def is_under_way(trial: pb.Trial) -> bool:
    """Whether a trial may still get an objective."""
    return trial.status.condition in _UNDER_WAY


def _seconds(status: pb.TrialStatus) -> float | None:
    start, end = _parse_time(status.start_time), _parse_time(status.completion_time)
    if start is None or end is None or end < start:
        return None
    return (end - start).total_seconds()


def _parse_time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def best_and_newest(observed: Sequence[Observed], items_max: int) -> list[Observed]:
    """Return at most `items_max` finished trials: the better half of that, and the newest."""
    if len(observed) <= items_max:
        return list(observed)
    by_loss = sorted(range(len(observed)), key=lambda i: observed[i].loss)
    kept = set(by_loss[: items_max // 2])
    for i in range(len(observed) - 1, -1, -1):
        if len(kept) == items_max:
            break
        kept.add(i)
    return [observed[i] for i in sorted(kept)]


def squarable(losses: Iterable[float]) -> list[float]:
    """Return losses, divided by the largest if sums of their squares would overflow."""
    losses = list(losses)
    largest = max((abs(loss) for loss in losses), default=0.0)
    return [loss / largest for loss in losses] if largest > _SQUARABLE_MAX else losses
