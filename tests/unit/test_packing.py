"""Packed scalar points are restored bit by bit, and are small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.series.tables.scalar_format import concatenate, pack, pack_raw, unpack, unpack_raw
from tbwire import packing
from tbwire.points import ScalarPoints

POINT = st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.floats(width=64))


def points_of(rows):
    steps, wall_times, values = zip(*rows, strict=True)
    return ScalarPoints(
        np.array(steps, np.int64), np.array(wall_times, np.float64), np.array(values, np.float64)
    )


def bits(points):
    return [column.tobytes() for column in (points.steps, points.wall_times, points.values)]


@given(st.lists(POINT, min_size=1, max_size=50).map(points_of))
def test_packed_points_come_back_bit_by_bit(points):
    assert bits(unpack(pack(points))) == bits(points)


@given(
    st.lists(POINT, min_size=1, max_size=50).map(points_of),
    st.lists(POINT, min_size=1, max_size=5).map(points_of),
)
def test_raw_rows_concatenate(first, second):
    assert bits(unpack_raw(pack_raw(first) + pack_raw(second))) == bits(
        concatenate([first, second])
    )


def test_block_of_ordinary_series_takes_eight_bytes_point():
    rng = np.random.default_rng(0)
    n = 8192
    points = ScalarPoints(
        np.arange(n) * 10,
        1.7e9 + np.cumsum(rng.random(n)),
        rng.normal(size=n).astype(np.float32).astype(np.float64),
    )
    assert len(pack(points)) < 8.1 * n


def test_block_of_newer_format_is_refused():
    data = bytearray(pack(points_of([(1, 2.0, 3.0)])))
    data[0] = 99
    with pytest.raises(ValueError, match="newer tbhub"):
        unpack(bytes(data))


@given(st.lists(POINT, min_size=1, max_size=50).map(points_of), st.data())
def test_block_that_is_cut_or_longer_is_refused(points, data):
    block = pack(points)
    cut = data.draw(st.integers(0, len(block) - 1))
    for damaged in (block[:cut], block + bytes(1)):
        with pytest.raises(ValueError, match="packed block"):
            unpack(damaged)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_block_are_refused_or_are_one(content):
    for bytes_ in (content, b"\x01" + content):
        try:
            points = unpack(bytes_)
        except ValueError:
            continue
        assert packing.count(bytes_) == len(points.steps) == len(points.values) <= len(bytes_)


def test_float32_values_are_packed_narrow_and_read_wide():
    values = np.array([np.nan, -np.inf, 1 / 3, -0.0], np.float32)
    block = packing.pack(np.arange(4), np.arange(4.0), values)
    assert bits(unpack(block))[2] == values.astype(np.float64).tobytes()
    assert len(block) == len(packing.pack(np.arange(4), np.arange(4.0), values.astype(np.float64)))
