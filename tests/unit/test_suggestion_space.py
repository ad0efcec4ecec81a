"""Search spaces of Katib's experiments: values within bounds and on steps, and what is refused."""

from __future__ import annotations

import math
from decimal import Decimal
from statistics import median

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from support.sweeps import parameter
from tbservice.errors import Invalid
from tbservice.katib import katib_pb2 as pb
from tbservice.katib.suggestions.specification import read_space

DISTRIBUTIONS = (
    pb.DISTRIBUTION_UNSPECIFIED,
    pb.UNIFORM,
    pb.LOG_UNIFORM,
    pb.NORMAL,
    pb.LOG_NORMAL,
)
FLOATS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 100),
    st.integers(0, 10).map(float),
)
POSITIONS = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1 - 2**-53]))


def read(*specs):
    return read_space(specs).parameters[0]


def read_or_reject(*args, **options):
    """The parameter, unless its range is too wide or has no logarithm: that is tested elsewhere."""
    try:
        return read(parameter(*args, **options))
    except Invalid as error:
        assume("min and max differ" not in str(error))
        assume("logarithmic" not in str(error))
        raise


@given(
    bounds=st.tuples(FLOATS, FLOATS).map(sorted),
    distribution=st.sampled_from(DISTRIBUTIONS),
    position=POSITIONS,
)
@example(bounds=[0.0, 1e-12], distribution=pb.LOG_UNIFORM, position=0.0)
@example(bounds=[0.0, 5e-324], distribution=pb.LOG_UNIFORM, position=0.3)
@example(bounds=[5e-324, 1e-323], distribution=pb.NORMAL, position=0.3)
def test_double_without_step_is_within_bounds(bounds, distribution, position):
    low, high = bounds
    number = read_or_reject("x", "double", low, high, distribution=distribution)
    value = float(number.text(number.value(position)))
    assert low <= value <= high
    assert number.parse(number.text(number.value(position))) == number.value(position)
    assert 0 <= number.position(number.value(position)) <= 1


@given(
    low=st.integers(-1000, 1000),
    width=st.integers(0, 1000),
    step=st.integers(1, 300),
    scale=st.sampled_from(["1", "0.1", "1e-7", "1e9"]),
    distribution=st.sampled_from(DISTRIBUTIONS),
    position=POSITIONS,
)
@example(low=5, width=5, step=300, scale="1", distribution=pb.NORMAL, position=0.5)
@example(low=0, width=5, step=1, scale="1", distribution=pb.LOG_UNIFORM, position=0.0)
def test_double_with_step_is_on_step(low, width, step, scale, distribution, position):
    least, greatest, distance = (Decimal(n) * Decimal(scale) for n in (low, low + width, step))
    number = read_or_reject(
        "x", "double", least, greatest, step=distance, distribution=distribution
    )
    value = number.value(position)
    assert 0 <= value < number.count == width // step + 1
    assert number.text(value) == str(float(least + value * distance))
    assert number.parse(number.text(value)) == value


@pytest.mark.parametrize(("low", "high"), [(-5.0, 10.0), (0.0, 1.0), (0.1, 0.7), (1000.1, 1000.7)])
def test_step_that_was_computed_ends_at_the_bound(low, high):
    """15 / 7 as text is rounded up: seven of them, added exactly, are more than 15."""
    for count in range(1, 200):
        number = read(parameter("x", "double", low, high, step=(high - low) / count))
        assert number.count == count + 1
        assert [number.text(0), number.text(count)] == [str(low), str(high)]


@given(
    bounds=st.tuples(*[st.integers(-(2**63) + 1, 2**63 - 1)] * 2).map(sorted),
    step=st.one_of(st.just(1), st.integers(1, 2**62)),
    distribution=st.sampled_from(DISTRIBUTIONS),
    position=POSITIONS,
)
@example(bounds=[2**53, 2**53 + 1], step=1, distribution=pb.UNIFORM, position=1.0)
def test_int_is_on_step_within_bounds(bounds, step, distribution, position):
    low, high = bounds
    number = read_or_reject("x", "int", low, high, step=step, distribution=distribution)
    value = int(number.text(number.value(position)))
    assert low <= value <= high
    assert (value - low) % step == 0


@pytest.mark.parametrize(("step", "least"), [("0.01", 1), ("0.8", 1), ("2.5", 3), ("1e-300", 1)])
def test_int_with_fraction_as_step_has_it_rounded_up(step, least):
    """Katib's own test of its hyperopt service has the first two."""
    assert read(parameter("x", "int", 1, 5, step=step)).step == least


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("step", ["", "0.5"])
def test_position_is_inverse_of_value(distribution, step):
    number = read(parameter("x", "double", 1, 5, step=step, distribution=distribution))
    values = [number.value(i / 50) for i in range(51)]
    assert values == sorted(values)
    assert [values[0], values[-1]] == pytest.approx([0, 8] if step else [1, 5])
    for value in values:
        position = number.position(value)
        assert number.value(position) == pytest.approx(value)


@pytest.mark.parametrize(
    ("distribution", "middle", "inner"),
    [
        (pb.UNIFORM, 50.5, 0.333),
        (pb.LOG_UNIFORM, 10, 0.152),
        (pb.NORMAL, 50.5, 0.683),
        (pb.LOG_NORMAL, 10, 0.049),
    ],
)
def test_distribution_has_its_middle_and_width(distribution, middle, inner):
    number = read(parameter("x", "double", 1, 100, distribution=distribution))
    values = [number.value((i + 0.5) / 1000) for i in range(1000)]
    assert median(values) == pytest.approx(middle, rel=0.01)
    share = sum(34 <= value <= 67 for value in values) / 1000
    assert share == pytest.approx(inner, abs=0.01)


def test_int_bounds_are_as_likely_as_others():
    number = read(parameter("x", "int", 1, 5))
    values = [number.text(number.value((i + 0.5) / 1000)) for i in range(1000)]
    assert {values.count(text) for text in "12345"} == {200}


def test_choice_keeps_texts_and_ignores_repeats():
    choice = read(parameter("x", "discrete", "0.10", "2", "0.10", "1e-3"))
    assert [choice.text(choice.value(p)) for p in (0, 0.4, 0.9, 1)] == ["0.10", "2", "1e-3", "1e-3"]
    assert choice.count == 3
    assert choice.parse("0.1") is None


def test_space_counts_and_numbers_its_points():
    space = read_space(
        [
            parameter("a", "int", 1, 3),
            parameter("b", "categorical", "x", "y"),
            parameter("c", "double", 0, 1, step="0.3"),
        ]
    )
    points = [space.nth(i) for i in range(space.count)]
    assert len(set(points)) == space.count == 3 * 2 * 4
    assert [space.parse(dict(space.texts(point))) for point in points] == points
    assert read_space([parameter("a", "double", 0, 1)]).count is None


def test_space_knows_no_point_of_foreign_trials():
    space = read_space([parameter("a", "int", 1, 3), parameter("b", "categorical", "x", "y")])
    assert space.parse({"a": "2", "b": "y", "c": "1"}) == (1, 1)
    assert space.parse({"a": "99", "b": "x"}) == (2, 0)
    for assignments in (
        {"a": "2"},
        {"a": "2", "b": "z"},
        {"a": "nan", "b": "x"},
        {"a": "", "b": "x"},
    ):
        assert space.parse(assignments) is None


NAME = "n" * 10_000

REFUSED = [
    (parameter("a", "double", 5, 1), "parameter a: min 5 is greater than max 1"),
    (parameter("a", "double", "nan", 1), "parameter a: min nan is not a finite number"),
    (parameter("a", "double", 0, "inf"), "parameter a: max inf is not a finite number"),
    (parameter("a", "double", 0, "1e999"), "parameter a: max 1e999 is not a finite number"),
    (parameter("a", "double", "", 1), "parameter a: min  is not a finite number"),
    (parameter("a", "double", "1_0", 20), "parameter a: min 1_0 is not a finite number"),
    (parameter("a", "double", 0, 1, step=0), "parameter a: step 0 is not greater than zero"),
    (parameter("a", "int", 0, 9, step=-1), "parameter a: step -1 is not greater than zero"),
    (parameter("a", "int", 0, 9, step="-0.5"), "parameter a: step -0.5 is not greater than zero"),
    (parameter("a", "int", 0, 9, step="1e19"), "parameter a: step 1e19 is not an integer of 64"),
    (parameter("a", "int", 0, "1.5"), "parameter a: max 1.5 is not an integer of 64 bits"),
    (parameter("a", "int", 0, 2**70), f"parameter a: max {2**70} is not an integer of 64 bits"),
    (
        parameter("a", "double", -1e308, 1e308),
        "parameter a: min and max differ by more than 1e+300",
    ),
    (
        parameter("a", "double", -1, 1, distribution=pb.LOG_UNIFORM),
        "parameter a: a logarithmic distribution needs min >= 0 and max > 0",
    ),
    (parameter("a", "categorical"), "parameter a: feasible_space.list is empty"),
    (parameter("", "int", 0, 1), "parameter 1 has no name"),
    (pb.ParameterSpec(name="a"), "parameter a: parameter_type 0 is not one of"),
    (pb.ParameterSpec(name="a", parameter_type=9), "parameter a: parameter_type 9 is not one of"),
    (parameter(NAME, "int", 2, 1), f"parameter {'n' * 100}…: min 2 is greater"),
    (parameter("a", "double", 0, "9" * 10_000), f"parameter a: max {'9' * 100}… is not"),
    (parameter("a", "categorical", *range(10_001)), "more than 10000 items in lists"),
]


@pytest.mark.parametrize(("spec", "text"), REFUSED, ids=[text[:40] for _, text in REFUSED])
def test_specification_is_refused_with_reason(spec, text):
    with pytest.raises(Invalid, match="^" + text.replace("+", r"\+").replace("(", r"\(")):
        read_space([spec])


def test_specification_refuses_repeated_names_and_crowds():
    spec = parameter("a", "int", 0, 1)
    with pytest.raises(Invalid, match=r"^parameter a is defined twice$"):
        read_space([spec, spec])
    with pytest.raises(Invalid, match=r"^more than 100 parameters"):
        read_space(parameter(f"p{i}", "int", 0, 1) for i in range(1_000_000))


def test_hostile_exponents_make_no_long_numbers():
    number = read(parameter("a", "double", "1e-999999999", "0e999999999", step="1e-300"))
    assert number.text(number.value(0.5)) == "0.0"
    number = read(parameter("a", "double", 0, 1, step="5e-324"))
    assert math.isfinite(float(number.text(number.value(1))))
