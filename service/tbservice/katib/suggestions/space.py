"""The search space of an experiment: its parameters, and points as one value per parameter.

A value is an index (of an item of a list, or of a step) or a float where every number is allowed.
Points are tuples, so that they can be compared and counted. Samplers see positions in the unit
cube.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, Final

from tbservice.katib.suggestions.scales import Scale

_SHARES: Final = 2**53
"""Steps of random floats in [0, 1)."""

Value = int | float
Point = tuple[Value, ...]


@dataclass(frozen=True)
class Choice:
    """A CATEGORICAL or DISCRETE parameter: its value is an index of `items`."""

    name: str
    items: tuple[str, ...]
    _indices: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_indices", {item: i for i, item in enumerate(self.items)})

    @property
    def count(self) -> int:
        """How many values there are."""
        return len(self.items)

    @property
    def text_bytes_max(self) -> int:
        """Bytes of the longest value as text."""
        return max(len(item.encode()) for item in self.items)

    def text(self, value: Value) -> str:
        """Return a value as the trial gets it: the item of the list, unchanged."""
        return self.items[int(value)]

    def parse(self, text: str) -> int | None:
        """Return the value of a text, or None if it is not in the list."""
        return self._indices.get(text)

    def value(self, position: float) -> int:
        """Return the value at a position in [0, 1]."""
        return min(int(position * self.count), self.count - 1)

    def position(self, value: Value) -> float:
        """Return the position of a value in [0, 1]."""
        return (value + 0.5) / self.count


@dataclass(frozen=True)
class Number:
    """An INT or DOUBLE parameter: its value is an index of a step, or a float without steps.

    Attributes:
        low: The least value.
        high: The greatest value; of steps, the one on the last step.
        step: The distance of values; None if all values from `low` to `high` are allowed.
        scale: How values spread over the unit interval; None if there is one value only.
    """

    name: str
    is_int: bool
    low: Decimal
    high: Decimal
    step: Decimal | None
    scale: Scale | None
    is_uniform: bool
    text_bytes_max: ClassVar[int] = 25  # of a float or an int64

    @cached_property
    def count(self) -> int | None:
        """How many values there are; None if every number is allowed."""
        if self.scale is None:
            return 1
        return None if self.step is None else steps(self.low, self.high, self.step) + 1

    def text(self, value: Value) -> str:
        """Return a value as the trial gets it: `str` of an int or of a float."""
        if self.count is None:
            return str(float(value))
        exact = self.low + int(value) * (self.step or 0)
        return str(int(exact)) if self.is_int else str(float(exact))

    def parse(self, text: str) -> Value | None:
        """Return the value nearest to a number as text; None if it is not a finite number."""
        try:
            number = float(text)
        except ValueError:
            return None
        return self._nearest(number) if math.isfinite(number) else None

    def value(self, position: float) -> Value:
        """Return the value at a position in [0, 1]."""
        return 0 if self.scale is None else self._nearest(self.scale.value(position))

    def position(self, value: Value) -> float:
        """Return the position of a value in [0, 1]."""
        if self.scale is None:
            return 0.5
        if self.count is not None and self.step is not None:
            value = float(self.low) + value * float(self.step)
        return self.scale.position(value)

    def _nearest(self, number: float) -> Value:
        if self.count is None:
            return min(max(number, float(self.low)), float(self.high))
        if self.step is None or self.count == 1:
            return 0
        index = (number - float(self.low)) / float(self.step)
        return min(max(round(index), 0), self.count - 1) if math.isfinite(index) else 0


Parameter = Choice | Number


def steps(low: Decimal, high: Decimal, step: Decimal) -> int:
    """Return how many times `step` fits between two numbers, exactly."""
    (a, b), (c, d) = (high - low).as_integer_ratio(), step.as_integer_ratio()
    return a * d // (b * c)


@dataclass(frozen=True)
class Space:
    """The parameters of an experiment, in the order of its specification."""

    parameters: tuple[Parameter, ...]

    @cached_property
    def count(self) -> int | None:
        """How many points there are; None if one parameter allows every number."""
        counts = [parameter.count for parameter in self.parameters]
        finite = [count for count in counts if count is not None]
        return math.prod(finite) if len(finite) == len(counts) else None

    def point(self, positions: Iterable[float]) -> Point:
        """Return the point at positions in the unit cube."""
        return tuple(
            parameter.value(float(position))
            for parameter, position in zip(self.parameters, positions, strict=True)
        )

    def positions(self, point: Point) -> list[float]:
        """Return the positions of a point in the unit cube."""
        return [
            parameter.position(value)
            for parameter, value in zip(self.parameters, point, strict=True)
        ]

    def index_at(self, share: float) -> int:
        """Return the index at a share in [0, 1) of a space with a count.

        In integers: the count of many parameters, or of a tiny step, is beyond floats.
        """
        return int(share * _SHARES) * (self.count or 0) // _SHARES

    def nth(self, index: int) -> Point:
        """Return the point of an index in [0, count) of a space with a count."""
        values: list[Value] = []
        for parameter in reversed(self.parameters):
            index, value = divmod(index, parameter.count or 1)
            values.append(value)
        return tuple(reversed(values))

    def parse(self, assignments: Mapping[str, str]) -> Point | None:
        """Return the point of a trial; None if a parameter is missing or makes no sense."""
        values: list[Value] = []
        for parameter in self.parameters:
            text = assignments.get(parameter.name)
            value = None if text is None else parameter.parse(text)
            if value is None:
                return None
            values.append(value)
        return tuple(values)

    def texts(self, point: Point) -> list[tuple[str, str]]:
        """Return names and values of a point as the trial gets them."""
        return [
            (parameter.name, parameter.text(value))
            for parameter, value in zip(self.parameters, point, strict=True)
        ]

    def without(self, name: str) -> Space:
        """Return the space of the other parameters."""
        return Space(tuple(p for p in self.parameters if p.name != name))
