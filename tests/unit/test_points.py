"""The columns that both sides share: joined, cut, counted, and as bytes on the wire."""

import dataclasses

import numpy as np
import pytest

from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.ingest.decode import decode_batch
from tbservice.reading.value_readers import VALUE_READERS
from tbservice.samples import BlobSequenceSample, ScalarSample, TensorSample, TensorValue, cut
from tbservice.series.tables.scalar_format import PackedScalarPoints
from tbupload.events.points import Tensor
from tbupload.http.wire_limits import WireLimits
from tbupload.upload.point_encoding import COUNT_NAMES, encode_points
from tbwire import read_pb2, tensorboard_pb2, wire_pb2
from tbwire.points import (
    DATA_CLASSES,
    BlobSequencePoints,
    DataClass,
    ScalarPoints,
    TensorPoints,
    concatenate,
    get_columns,
    set_columns,
)

LIMITS = WireLimits(1 << 20, 1000, 1 << 30, 1 << 20, 100, 1 << 20)
STEPS, TIMES = np.arange(3), np.arange(3) + 0.5
POINTS = [
    ScalarPoints(STEPS, TIMES, TIMES * 2),
    TensorPoints(STEPS, TIMES, [Tensor(1, (), bytes([n] * 4)) for n in range(3)]),
    BlobSequencePoints(STEPS, TIMES, [[b"a", b"b", b"b"], [], [b"c"]], ["", "", "audio/wav"]),
]
SAMPLES = [
    ScalarSample(STEPS, TIMES, TIMES * 2, 9),
    TensorSample(STEPS, TIMES, [TensorValue(1, (), bytes([n] * 4)) for n in range(3)], 9),
    BlobSequenceSample(
        STEPS, TIMES, [["k1", "k2"], [], ["k3"]], ["", "", "t"], [[b"1", b"2"], [], [b"3"]], 9
    ),
]


def rows(points):
    """Every point as a tuple, without the total of a sample."""
    names = [column.name for column in dataclasses.fields(points) if column.name != "total"]
    return list(zip(*(list(getattr(points, name)) for name in names), strict=True))


@pytest.mark.parametrize("selected", [slice(1, 3), np.array([2, 0]), np.array([True, False, True])])
@pytest.mark.parametrize("points", POINTS)
def test_points_selected_have_all_columns(points, selected):
    of_points = np.arange(len(points))[selected]
    assert rows(points.select(selected)) == [rows(points)[index] for index in of_points]


@pytest.mark.parametrize("points", POINTS)
def test_points_joined_are_in_the_order_of_chunks(points):
    later = dataclasses.replace(
        points,
        **{column.name: getattr(points, column.name)[:1] for column in dataclasses.fields(points)},
    )
    joined = concatenate([points, later])
    assert type(joined) is type(points)
    assert rows(joined) == [*rows(points), *rows(later)]
    assert concatenate([points]) is points


@pytest.mark.parametrize("sample", SAMPLES)
def test_sample_cut_keeps_every_column_and_total(sample):
    parts = [cut(sample, slice(0, 1)), cut(sample, slice(1, 3))]
    assert [row for part in parts for row in rows(part)] == rows(sample)
    assert {(type(part), part.total) for part in parts} == {(type(sample), 9)}


def test_points_received_packed_lose_blocks_when_selected():
    packed = PackedScalarPoints(STEPS, TIMES, TIMES, (b"block",))
    assert type(packed.select(slice(2))) is ScalarPoints


def test_points_count_blobs_of_every_step():
    assert [points.value_count for points in POINTS] == [3, 3, 4]
    assert concatenate([POINTS[2], POINTS[2]]).value_count == 8


def test_columns_on_the_wire_are_read_back():
    message = wire_pb2.TensorPoints()
    set_columns(message, POINTS[1])
    steps, wall_times = get_columns(message)
    assert (steps.tolist(), wall_times.tolist()) == (STEPS.tolist(), TIMES.tolist())


def test_data_classes_are_those_of_tensorboard():
    for data_class in DataClass:
        name = f"DATA_CLASS_{data_class.label.upper()}"
        assert tensorboard_pb2.DataClass.Value(name) == data_class


def test_data_classes_have_an_adapter_in_every_table():
    for message in (wire_pb2.Series, read_pb2.Part):
        fields = message.DESCRIPTOR.oneofs_by_name["points"].fields
        assert {field.name for field in fields} == set(DATA_CLASSES)
    assert set(DATA_CLASSES.values()) == set(DataClass)
    assert set(VALUE_FORMATS) == set(COUNT_NAMES) == set(DataClass)
    assert set(VALUE_READERS) == set(DataClass) - {DataClass.SCALAR}


@pytest.mark.parametrize("points", POINTS)
def test_points_encoded_by_uploader_are_decoded_by_server(points):
    batch = wire_pb2.WriteBatch()
    segment = batch.segments.add(end=1)
    segment.stream.first_record_digest = segment.stream.filters_digest = bytes(32)
    encode_points(segment.series.add(tag="t"), points, LIMITS, {}, is_increasing=True)
    [decoded] = decode_batch(batch.SerializeToString())
    [series] = decoded.series
    assert series.points.data_class is points.data_class
    assert series.points.steps.tolist() == STEPS.tolist()
    assert series.points.value_count == points.value_count
