"""Columns of the page: domains with all values, as the run table and the dashboard need them."""

from __future__ import annotations

import math

import pytest

from tbservice.tensorboard.native.hparams import cover
from tbwire.hparams import DeclaredHparam, HparamType, Interval

TEXT, FLAG, NUMBER = (
    HparamType.DATA_TYPE_STRING,
    HparamType.DATA_TYPE_BOOL,
    HparamType.DATA_TYPE_FLOAT64,
)
NINE = tuple(map(float, range(9)))


@pytest.mark.parametrize(
    ("type_", "declared", "seen", "covered"),
    [
        (NUMBER, Interval(0.1, 0.2), [], (NUMBER, Interval(0.1, 0.2))),
        (NUMBER, Interval(0.1, 0.2), [0.5, 0.15], (NUMBER, Interval(0.1, 0.5))),
        (NUMBER, Interval(-math.inf, 0.2), [0.5], (NUMBER, Interval(-math.inf, 0.5))),
        (NUMBER, Interval(math.nan, 0.2), [0.5], (NUMBER, Interval(0.2, 0.5))),
        (NUMBER, Interval(0.1, 0.2), ["x", 0.15], (TEXT, (0.15, "x"))),
        (NUMBER, (1.0, 2.0), [3.0], (NUMBER, (1.0, 2.0, 3.0))),
        (NUMBER, NINE, [0.0], (NUMBER, NINE)),
        (NUMBER, NINE, [9.0], (NUMBER, Interval(0.0, 9.0))),
        (NUMBER, (1.0,), [True], (TEXT, (1.0, True))),
        (NUMBER, None, [math.nan], (NUMBER, None)),
        (None, None, [math.nan, math.inf, 1.0], (NUMBER, Interval(1.0, 1.0))),
        (None, None, [], (TEXT, None)),
        (None, None, ["x", 1.0, True, False], (TEXT, (False, True, 1.0, "x"))),
        (TEXT, ("b", "a"), ["c", "a"], (TEXT, ("b", "a", "c"))),
        (TEXT, None, ["b", "a", "a"], (TEXT, ("a", "b"))),
        (FLAG, (True,), [False], (FLAG, (True, False))),
        (FLAG, None, [1.0, True], (TEXT, (True, 1.0))),
        (None, Interval(0.0, 1.0), [], (NUMBER, Interval(0.0, 1.0))),
        (None, Interval(0.0, 1.0), ["x"], (TEXT, ("x",))),
    ],
)
def test_cover_includes_all_finite_values(type_, declared, seen, covered):
    type_ = HparamType.DATA_TYPE_UNSET if type_ is None else type_
    column = cover(DeclaredHparam("x", type=type_, domain=declared), seen)
    assert (column.type, column.domain) == covered


def test_cover_keeps_what_else_is_declared():
    declared = DeclaredHparam("x", "A name", "Words", NUMBER, Interval(0.0, 1.0), differs=False)
    column = cover(declared, [0.5, 2.0])
    assert (column.display_name, column.description, column.differs) == ("A name", "Words", True)
