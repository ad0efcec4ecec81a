"""Blocks of version 1 stay readable: databases hold them, and older clients send them.

The bytes were written once, by version 1 of the format, and are never generated again. A new
version of the format adds blocks of its own here, and removes none of these.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from support.python39 import zip_strict
from support.source_code import ROOT
from tbwire import packing

VERSION_1 = {
    "documented_example": (
        (
            "0101010404000000"
            "00000000000000000a000000000000000500000000000000"
            "00000040fc54d94100004000000000000000200000000000"
            "0000010000010000003f0000803e0000003ecdcccc3d"
        ),
        [0, 10, 20, 35],
        [1700000000.0, 1700000001.0, 1700000002.0, 1700000003.5],
        [0.5, 0.25, 0.125, 0.10000000149011612],
    ),
    "one_point": (
        (
            "0100000401000000"
            "070000000000000000000000000000000100000000000000"
            "00000040fc54d94100000000000000000100000000000000"
            "0000803f"
        ),
        [7],
        [1700000000.0],
        [1.0],
    ),
    "steps_of_2_bytes_and_float64": (
        (
            "0102080804000000"
            "fbffffffffffffff8ff4ffffffffffff0100000000000000"
            "00000040fc54d9410000003c00ab26be0100000000000000"
            "760b29170000010000c4ff54d941ffffff470355d94100000000000000009a9999999999b93f0000000000000080000000000000f07f9c7500883ce4377e"
        ),
        [-5, 0, 3000, 71],
        [1700000000.0, 1700000000.0000002, 1700003600.0, 0.0],
        [0.1, -0.0, float("inf"), 1e300],
    ),
    "steps_of_4_bytes_and_nan": (
        (
            "0104000404000000"
            "000000000000000001000000000000000100000000000000"
            "00000040fc54d94100000000000000000100000000000000"
            "6f1101000000000095eefeff0000c07f000080ff0000404000000080"
        ),
        [0, 70000, 70001, 4294967303],
        [1700000000.0, 1700000000.0, 1700000000.0, 1700000000.0],
        [float("nan"), float("-inf"), 3.0, -0.0],
    ),
    "steps_of_8_bytes": (
        (
            "0108000404000000"
            "000000000000000004000000000000c00100000000000000"
            "00000040fc54d94100004000000000000100000000000000"
            "fdffffffffffff3ffcffffffffffff7f00000000000000000000803f000000400000404000008040"
        ),
        [0, 1, 4611686018427387905, 5],
        [1700000000.0, 1700000001.0, 1700000002.0, 1700000003.0],
        [1.0, 2.0, 3.0, 4.0],
    ),
    "ends_of_int64": (
        (
            "0101010403000000"
            "00000000000000800100000000000080feffffffffffff7f"
            "000000000000f8bf0100000000000840fdffffffffffe73f"
            "010000010000803f0000004000004040"
        ),
        [-9223372036854775808, 9223372036854775807, 0],
        [-1.5, 5e-324, 1.7976931348623157e308],
        [1.0, 2.0, 3.0],
    ),
}
"""Hexadecimal bytes (header, columns), then the steps, wall times and values that they hold."""

CASES = pytest.mark.parametrize(
    ("content", "steps", "wall_times", "values"), VERSION_1.values(), ids=VERSION_1
)


def columns(steps, wall_times, values):
    return np.array(steps, np.int64), np.array(wall_times), np.array(values)


def bits(points):
    return [column.tobytes() for column in points]


@CASES
def test_packing_version_1_block_is_readable(content, steps, wall_times, values):
    block = bytes.fromhex(content)
    assert packing.count(block) == len(steps)
    assert bits(packing.unpack(block)) == bits(columns(steps, wall_times, values))


@CASES
def test_packing_same_points_are_written_and_read(content, steps, wall_times, values):
    points = columns(steps, wall_times, values)
    block = packing.pack(*points)
    assert bits(packing.unpack(block)) == bits(points)
    if block[0] == 1:  # a later version may pack them otherwise, the same version may not
        assert block.hex() == content


def test_packing_cases_have_every_width():
    """Steps 0, 1, 2, 4, 8 bytes; wall times 0, 1, 8; values 4, 8: each is a path of the reader."""
    headers = [bytes.fromhex(content)[1:4] for content, *_ in VERSION_1.values()]
    steps, wall_times, values = map(set, zip_strict(*headers))
    assert steps == {0, 1, 2, 4, 8}
    assert {0, 1, 8} <= wall_times
    assert values == {4, 8}


def test_packing_example_of_documentation_is_the_block():
    page = (ROOT / "docs" / "wire.md").read_text()
    shown = re.search(r"```text\n(01 01 01 04.*?)```", page, re.DOTALL)[1]
    groups = [re.match(r"((?:[0-9a-f]{2} ?)+)(?:   |$)", line)[1] for line in shown.splitlines()]
    assert bytes.fromhex("".join(groups)).hex() == VERSION_1["documented_example"][0]
