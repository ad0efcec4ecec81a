"""Compressed blocks are restored bit by bit, small, and each damaged byte of one is noticed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbservice.errors import Invalid
from tbservice.ingest.decode_points import decode_points
from tbservice.series.tables import compressed_blocks
from tbservice.series.tables.scalar_format import (
    compress,
    is_compressed,
    pack,
    unpack,
    unpack_all,
)
from tbwire import wire_pb2
from tbwire.points import ScalarPoints

POINT = st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.floats(width=64))
STARTED = 1_700_000_000


def points_of(steps, wall_times, values):
    return ScalarPoints(
        np.array(steps, np.int64), np.array(wall_times, np.float64), np.array(values, np.float64)
    )


def bits(points):
    return [column.tobytes() for column in (points.steps, points.wall_times, points.values)]


def make_clock(count, *, whole_microseconds=False):
    """Return wall times of steps of 10 ms or so."""
    gaps = np.random.default_rng(1).lognormal(np.log(10_000), 0.1, count)
    times = STARTED * 1e6 + np.cumsum(gaps)
    return np.rint(times) / 1e6 if whole_microseconds else times / 1e6


def make_loss(count):
    noise = np.random.default_rng(2).normal(1, 0.1, count)
    return np.float32(np.exp(-np.arange(count) / count) * noise).astype(np.float64)


def make_schedule(count):
    return np.float32(1 + np.cos(np.pi * np.arange(count) / count)).astype(np.float64)


ROWS = st.lists(POINT, min_size=1, max_size=300).map(
    lambda rows: points_of(*zip(*rows, strict=True))
)


@given(ROWS)
def test_compressed_points_come_back_bit_by_bit(points):
    assert bits(unpack(compress(points))) == bits(points)


@given(st.lists(ROWS, max_size=8), st.booleans())
def test_blocks_that_are_decoded_together_come_back_bit_by_bit(series, is_one_packed):
    """Also of several lengths and widths, and with a block of the wire's format among them."""
    series += [points_of(range(40), make_clock(40), make_loss(40) * sign) for sign in (1, -1)]
    blocks = [*map(compress, series)] + [pack(series[0])] * is_one_packed
    assert [bits(each) for each in unpack_all(blocks)] == [
        *map(bits, series),
        *[bits(series[0])] * is_one_packed,
    ]


def test_more_blocks_than_are_decoded_at_once_come_back():
    series = [
        points_of(range(count), make_clock(count), make_loss(count))
        for count in (8_192, 8_000, 1_000, 8_192, 16)
    ]
    assert [*map(bits, unpack_all([*map(compress, series)]))] == [*map(bits, series)]
    assert unpack_all([]) == []


def test_damaged_block_among_others_is_refused():
    block = bytes.fromhex(WRITTEN)
    for damaged in (block[:-1], block[:60] + b"?" + block[61:], block[:3], b""):
        with pytest.raises(ValueError, match="block"):
            unpack_all([block, damaged, block])


@pytest.mark.parametrize("count", [16, 1_023, 1_024, 8_192])
@pytest.mark.parametrize("whole_microseconds", [False, True])
@pytest.mark.parametrize("make_values", [make_loss, make_schedule, np.arange])
def test_compressed_series_come_back_bit_by_bit(count, whole_microseconds, make_values):
    steps = np.cumsum(np.random.default_rng(0).integers(1, 9, count))
    clock = make_clock(count, whole_microseconds=whole_microseconds)
    points = points_of(steps, clock, make_values(count))
    block = compress(points)
    assert is_compressed(block) or count == 16
    assert bits(unpack(block)) == bits(points)


@pytest.mark.parametrize(
    "special", [-0.0, np.inf, 2.0**-1074, 1e300, 0.1], ids=["-0", "inf", "least", "great", "0.1"]
)
def test_compressed_special_values_and_clocks_come_back(special):
    values = np.full(100, special)
    values[50:] = np.nan
    wall_times = make_clock(100, whole_microseconds=True)
    wall_times[7] = special if np.isfinite(special) else -1e308
    points = points_of(range(100), wall_times, values)
    assert bits(unpack(compress(points))) == bits(points)


CASES = {
    "loss, any clock": (make_loss, False, 5.1),
    "loss, microseconds": (make_loss, True, 4.7),
    "learning rate, microseconds": (make_schedule, True, 2.2),
    "cosine restarts of float64": (lambda n: 1 + np.cos(np.arange(n) % 1_000 / 318), True, 2.6),
    "accuracy of batches of 64": (lambda n: np.float32(make_loss(n) * 64 // 1 / 64), False, 2.8),
}


@pytest.mark.parametrize(("make_values", "is_whole", "bytes_max"), CASES.values(), ids=CASES)
def test_compressed_series_take_few_bytes_point(make_values, is_whole, bytes_max):
    clock = make_clock(8_192, whole_microseconds=is_whole)
    points = points_of(range(8_192), clock, make_values(8_192))
    assert len(compress(points)) < bytes_max * 8_192 < len(pack(points))


def test_compressed_block_is_never_larger_than_packed_one():
    for count in (1, 15, 16, 40):
        points = points_of(range(count), make_clock(count), make_loss(count))
        assert len(compress(points)) <= len(pack(points))


WRITTEN = (
    "020002042800000000000000000000000a000000000000000100000000000000da661e18240a06005f23000000"
    "0000000100000000000000010200009e2d528528b52ffd20ee1d0600840bc8af350ee93632bb389317eb40cafb"
    "d01474008cac54fd2c5c52f1c027c1536ad5c7efd85fb5d5030507000006070102060301060102040400000605"
    "0603060203050002000307000202060103010005cf11e3454b0183df3fb5677d1f6d9fd95531b5e3666ca4b840"
    "0f15faa4093d10efcd51cb4b4d00ca928f888075685846331d06edd3b79a7c5e3f1f153f7ebcf9351642b51931"
    "5237034a3268021d000001001400000000010a14030406220a1617202565ce7f7f00031000bcce37b44901"
)
"""A block as it was written once, of 40 points: databases have such ones. Never generated again."""


def written_points():
    gaps = np.random.default_rng(1).integers(9_000, 11_000, 40)
    clock = np.round(1.7e9 * 1e6 + np.cumsum(gaps)) / 1e6
    schedule = np.float32(0.5 * (1 + np.cos(np.pi * np.arange(40) / 40)))
    return points_of(np.arange(40) * 10, clock, schedule)


def test_compressed_block_of_version_2_is_readable():
    block = bytes.fromhex(WRITTEN)
    assert block[0] == compressed_blocks.VERSION == 2
    assert bits(unpack(block)) == bits(written_points())


def test_compressed_block_with_any_damaged_byte_is_refused():
    block = bytes.fromhex(WRITTEN)
    for index in range(len(block)):
        damaged = bytearray(block)
        damaged[index] ^= 0x10
        with pytest.raises(ValueError, match="block"):
            unpack(bytes(damaged))


def test_compressed_block_that_was_cut_is_refused():
    block = bytes.fromhex(WRITTEN)
    for length in range(1, len(block)):
        with pytest.raises(ValueError, match="compressed block"):
            unpack(block[:length])


def test_block_of_unknown_format_is_named():
    block = b"\x03" + bytes.fromhex(WRITTEN)[1:]
    with pytest.raises(ValueError, match="format 3, which a newer tbhub made"):
        unpack(block)


def test_compressed_block_in_batch_is_refused():
    scalars = wire_pb2.ScalarPoints(blocks=[bytes.fromhex(WRITTEN)])
    with pytest.raises(Invalid, match="format 2"):
        decode_points([wire_pb2.Series(tag="loss", scalars=scalars)])


def test_reader_without_zstd_names_it_and_packs(monkeypatch):
    points = written_points()
    # Distributions build pyarrow without some of its codecs.
    monkeypatch.setattr(compressed_blocks, "_has_zstd", lambda: False)
    with pytest.raises(ValueError, match="compressed with zstd, which this pyarrow was built"):
        unpack(bytes.fromhex(WRITTEN))
    assert compress(points) == pack(points)


def test_threads_compress_and_read_at_once():
    blocks = [
        points_of(range(start, start + 8_192), make_clock(8_192), make_loss(8_192))
        for start in range(4)
    ]
    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(lambda points: unpack(compress(points)), blocks * 8))
    assert [bits(points) for points in read] == [bits(points) for points in blocks * 8]
