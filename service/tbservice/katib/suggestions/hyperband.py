"""Hyperband: many configurations with few resources, the better ones again with more.

A bracket s begins with n configurations at resource r, and continues in rounds with the best part
of them at eta times the resource (Li et al. 2018). Katib keeps the position in settings that travel
with every request, and answers with fewer suggestions than it was asked for at the end of a round,
which its controller refuses. Here the position is read off the trials themselves: the resource of
a trial says its round, its configuration's first resource its bracket. Suggestions that a round
cannot give yet come from the next bracket.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.distinct import draw_unused
from tbservice.katib.suggestions.history import assignments_of, is_under_way, loss_of
from tbservice.katib.suggestions.space import Choice, Number, Parameter, Point, Space
from tbservice.katib.suggestions.task import Task
from tbservice.katib.suggestions.texts import parse_number

_ETA: Final = 3.0
_ROUNDING: Final = 1e-9
_RESOURCE_MAX: Final = 1e9
_BRACKETS_ITEMS_MAX: Final = 50


@dataclass(frozen=True)
class Plan:
    """Sizes and resources of all brackets.

    Attributes:
        eta: How many times more resource the next round has, and fewer configurations.
        resource_max: The resource of the last round of every bracket.
        last: The number of the first bracket, s_max; the brackets are `last`, …, 1, 0, `last`, ….
    """

    eta: float
    resource_max: float
    last: int

    def amount(self, bracket: int, round_number: int) -> int:
        """Return the resource of a round, at least 1."""
        exact = self.resource_max * self.eta ** (round_number - bracket)
        return max(int(exact * (1 + _ROUNDING)), 1)

    def size(self, bracket: int, round_number: int) -> int:
        """Return how many configurations a round has."""
        first = math.ceil((self.last + 1) * self.eta**bracket / (bracket + 1) - _ROUNDING)
        return math.ceil(first * self.eta**-round_number - _ROUNDING)


def read_plan(settings: Mapping[str, str]) -> Plan:
    """Return the plan of the settings `r_l` and `eta`.

    Raises:
        Invalid: They are no numbers, or make no plan; with Katib's texts where it has one.
    """
    resource_max = parse_number(settings.get("r_l", ""))
    if resource_max is None or not 0 < resource_max < math.inf:
        raise Invalid("r_l must be a positive float number.")
    eta = parse_number(settings["eta"]) if settings.get("eta") else _ETA
    if eta is None or not math.isfinite(eta):
        raise Invalid("eta must be a number.")
    if eta <= 0:
        eta = _ETA  # as in Katib
    if eta <= 1:
        raise Invalid("eta must be greater than one.")
    # Rounded down as in Katib, where 1000 and 10 make 2: people set parallel_trial_count by it.
    ratio = math.log(max(resource_max, 1)) / math.log(eta)
    if ratio > _BRACKETS_ITEMS_MAX or resource_max > _RESOURCE_MAX:
        raise Invalid(
            f"r_l must be at most {_RESOURCE_MAX:g}, and eta^{_BRACKETS_ITEMS_MAX} at least r_l."
        )
    return Plan(eta, resource_max, int(ratio))


@dataclass
class _Configuration:
    """A configuration and its trials.

    Attributes:
        texts: Its assignments without the resource.
        losses: Objective by resource as text; None while under way, infinite if it failed.
    """

    texts: Sequence[tuple[str, str]]
    losses: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Resource:
    """The parameter that a configuration gets more of; None if the space has no such parameter."""

    parameter: Parameter | None

    def text(self, amount: int) -> str:
        """Return an amount as a value that the parameter allows, the nearest one if it must."""
        parameter = self.parameter
        if isinstance(parameter, Number):
            value = parameter.parse(str(amount))
            return parameter.text(value) if value is not None else str(amount)
        if isinstance(parameter, Choice):
            numbers = {item: parse_number(item) for item in parameter.items}
            known = {i: n for i, n in numbers.items() if n is not None and math.isfinite(n)}
            if known:
                return min(known, key=lambda item: abs(known[item] - amount))
            raise Invalid("the parameter that resource_name names must have numbers as values.")
        return str(amount)


def propose(
    task: Task, settings: Mapping[str, str], objective: pb.ObjectiveSpec, trials: Sequence[pb.Trial]
) -> list[list[tuple[str, str]]]:
    """Return the next assignments: of promoted configurations first, then of new ones.

    Raises:
        Invalid: The settings make no plan, or the resource has no numbers.
    """
    plan, name = read_plan(settings), settings.get("resource_name", "")
    names = [parameter.name for parameter in task.space.parameters]
    position = names.index(name) if name in names else None
    resource = _Resource(None if position is None else task.space.parameters[position])
    space = task.space.without(name)
    amounts = _amount_texts(plan, resource)
    configurations = _read_configurations(space, name, objective, trials)
    brackets = _assign_brackets(amounts, configurations.values())

    chosen = [
        (configuration.texts, text)
        for configuration, text in _promotions(plan, amounts, brackets)[: task.count]
    ]
    bases = _bracket_order(plan, {s: len(members) for s, members in brackets.items()})
    used = set(configurations)
    while len(chosen) < task.count:
        point = draw_unused(space, used, task.rng)
        used.add(point)
        chosen.append((space.texts(point), amounts[next(bases)][0]))
    return [_with_resource(texts, position, name, text) for texts, text in chosen]


def _with_resource(
    texts: Sequence[tuple[str, str]], position: int | None, name: str, text: str
) -> list[tuple[str, str]]:
    assignments = list(texts)
    if position is not None:
        assignments.insert(position, (name, text))
    return assignments


def _amount_texts(plan: Plan, resource: _Resource) -> dict[int, list[str]]:
    """Return the resource of each round of each bracket, as text."""
    return {
        bracket: [resource.text(plan.amount(bracket, i)) for i in range(bracket + 1)]
        for bracket in range(plan.last, -1, -1)
    }


def _read_configurations(
    space: Space, name: str, objective: pb.ObjectiveSpec, trials: Sequence[pb.Trial]
) -> dict[Point, _Configuration]:
    """Return the configurations in the order of their first trials; those not started come last."""
    configurations: dict[Point, _Configuration] = {}
    for trial in sorted(trials, key=lambda t: (not t.status.start_time, t.status.start_time)):
        assignments = assignments_of(trial)
        point = space.parse(assignments)
        if point is None:
            continue
        configuration = configurations.setdefault(point, _Configuration(space.texts(point)))
        amount = assignments.get(name, "")
        loss = None
        if not is_under_way(trial):
            loss = loss_of(trial, objective)
            loss = math.inf if loss is None else loss
        before = configuration.losses.get(amount)
        is_better = loss is not None and before is not None and loss > before
        configuration.losses[amount] = before if is_better else loss
    return configurations


def _assign_brackets(
    amounts: Mapping[int, Sequence[str]], configurations: Iterable[_Configuration]
) -> dict[int, list[_Configuration]]:
    """Return the configurations of each bracket: the one that begins with their least resource."""
    brackets: dict[int, list[_Configuration]] = {bracket: [] for bracket in amounts}
    for configuration in configurations:
        bracket = next((s for s in amounts if amounts[s][0] in configuration.losses), None)
        if bracket is not None:
            brackets[bracket].append(configuration)
    return brackets


def _promotions(
    plan: Plan,
    amounts: Mapping[int, Sequence[str]],
    brackets: Mapping[int, Sequence[_Configuration]],
) -> list[tuple[_Configuration, str]]:
    """Return configurations and the resource to run them again with, oldest brackets first."""
    found: list[tuple[int, int, _Configuration, str]] = []
    for bracket, configurations in brackets.items():
        size = plan.size(bracket, 0)
        for start in range(0, len(configurations) - size + 1, size):
            members = configurations[start : start + size]
            winners, text = _next_round(plan, bracket, amounts[bracket], members)
            found += [(start // size, -bracket, winner, text) for winner in winners]
    found.sort(key=lambda entry: entry[:2])
    return [(configuration, text) for *_, configuration, text in found]


def _next_round(
    plan: Plan, bracket: int, texts: Sequence[str], members: Sequence[_Configuration]
) -> tuple[list[_Configuration], str]:
    """Return who of a complete bracket is to run next, and with what; nobody while some run."""
    for number in range(bracket):
        losses = [configuration.losses.get(texts[number]) for configuration in members]
        ranked = [(loss, i) for i, loss in enumerate(losses) if loss is not None]
        if len(ranked) < len(losses):
            break
        ranked = sorted(entry for entry in ranked if math.isfinite(entry[0]))
        members = [members[i] for _, i in ranked[: plan.size(bracket, number + 1)]]
        if absent := [c for c in members if texts[number + 1] not in c.losses]:
            return absent, texts[number + 1]
    return [], ""


def _bracket_order(plan: Plan, counts: Mapping[int, int]) -> Iterator[int]:
    """Yield the bracket of each new configuration: each is filled before the next begins."""
    for cycle in itertools.count(1):
        for bracket in range(plan.last, -1, -1):
            vacant = cycle * plan.size(bracket, 0) - counts[bracket]
            size = plan.size(bracket, 0)
            yield from itertools.repeat(bracket, max(min(vacant, size), 0))
