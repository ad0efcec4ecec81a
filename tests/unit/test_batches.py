"""How chunks become segments: columns bit by bit, blobs by size, metadata until it is acknowledged."""

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from support.python39 import zip_strict
from tbupload.events.points import Chunk, SeriesPoints, Tensor
from tbupload.http.wire_limits import WireLimits
from tbupload.upload.batches import Batch
from tbupload.upload.segments import drop_largest_series, encode_segment
from tbwire import packing, wire_pb2
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints

LIMITS = WireLimits(
    batch_bytes_max=1 << 20,
    blob_inline_bytes_max=1000,
    blob_bytes_max=1 << 30,
    tensor_bytes_max=1 << 20,
    name_chars_max=100,
    metadata_bytes_max=1 << 20,
)
STREAM = wire_pb2.Stream(
    run="run", file_name="tfevents.1", first_record_digest=b"d" * 32, filters_digest=b"f" * 32
)
STEPS = np.array([3, -1, 2**63 - 1], dtype=np.int64)
WALL_TIMES = np.array([1.5, 2.5, 3.5])


def chunk_of(*series, skipped=()):
    return Chunk(100, 900, 1, 2, list(series), Counter(dict(skipped)))


def scalars(tag="loss", dtype=np.float32, metadata=b"metadata"):
    values = np.array([np.nan, np.inf, 1 / 3], dtype=dtype)
    return SeriesPoints(tag, "scalars", metadata, ScalarPoints(STEPS, WALL_TIMES, values))


def tensors(size, tag="tensor", histogram=None):
    tensor = Tensor(4, (size,), bytes(size), histogram)
    return SeriesPoints(tag, "p", b"m", TensorPoints(STEPS[:1], WALL_TIMES[:1], [tensor]))


def blobs(*contents, tag="images"):
    return SeriesPoints(
        tag, "images", b"m", BlobSequencePoints(STEPS[:1], WALL_TIMES[:1], [list(contents)], [""])
    )


def encoded(chunk, acknowledged=None, limits=LIMITS):
    segment = encode_segment(STREAM, chunk, 1.25, acknowledged or {}, limits)
    return segment, wire_pb2.WriteBatch.FromString(segment.body).segments[0]


def test_segment_says_which_bytes_of_which_stream_it_covers():
    segment, sent = encoded(chunk_of(skipped={"bad": 2}))
    assert (sent.start, sent.end, sent.start_checksum, sent.end_checksum) == (100, 900, 1, 2)
    assert sent.stream == STREAM
    assert sent.run_start_time == 1.25
    assert [(skipped.reason, skipped.count) for skipped in sent.skipped] == [("bad", 2)]
    assert (segment.start, segment.end) == (100, 900)


@pytest.mark.parametrize(
    ("dtype", "column", "other"),
    [(np.float32, "values32", "values64"), (np.float64, "values64", "values32")],
)
def test_scalars_travel_bit_by_bit_in_column_of_their_type(dtype, column, other):
    segment, sent = encoded(chunk_of(scalars(dtype=dtype)))
    points = sent.series[0].scalars
    assert np.frombuffer(points.steps, "<i8").tolist() == STEPS.tolist()
    assert np.frombuffer(points.wall_times, "<f8").tolist() == WALL_TIMES.tolist()
    assert getattr(points, column) == np.array([np.nan, np.inf, 1 / 3], dtype).tobytes()
    assert getattr(points, other) == b""
    assert segment.counts["scalars"] == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scalars_with_rising_steps_travel_packed(dtype):
    steps, values = (
        np.arange(20_000) * 3,
        np.random.default_rng(0).normal(size=20_000).astype(dtype),
    )
    chunk = chunk_of(SeriesPoints("loss", "scalars", b"m", ScalarPoints(steps, steps / 7, values)))
    _, wire = encoded(chunk, limits=replace(LIMITS, packed_points_max=8192))
    blocks = [packing.unpack(block) for block in wire.series[0].scalars.blocks]
    assert [len(block[0]) for block in blocks] == [6666, 6667, 6667]
    for column, sent in zip_strict(
        zip_strict(*blocks), (steps, steps / 7, values.astype(np.float64))
    ):
        assert np.concatenate(column).tobytes() == sent.tobytes()
    assert not wire.series[0].scalars.steps
    _, plain = encoded(chunk)
    assert not plain.series[0].scalars.blocks
    assert plain.series[0].scalars.steps == steps.tobytes()


def test_scalars_with_step_that_does_not_rise_travel_in_columns():
    steps = np.append(np.arange(5_000), 4_999)
    chunk = chunk_of(
        SeriesPoints("loss", "scalars", b"m", ScalarPoints(steps, steps / 7, steps / 3))
    )
    _, wire = encoded(chunk, limits=replace(LIMITS, packed_points_max=8192))
    assert not wire.series[0].scalars.blocks
    assert wire.series[0].scalars.steps == steps.tobytes()


def test_strided_columns_arrive_in_order():
    matrix = np.arange(12, dtype=np.int64).reshape(6, 2)
    columns = ScalarPoints(
        matrix[:, 1], matrix[:, 0].astype(float)[::-1], matrix[:, 0].astype(np.float32)
    )
    _, sent = encoded(chunk_of(SeriesPoints("t", "scalars", b"m", columns)))
    assert np.frombuffer(sent.series[0].scalars.steps, "<i8").tolist() == [1, 3, 5, 7, 9, 11]
    assert np.frombuffer(sent.series[0].scalars.wall_times, "<f8").tolist() == [10, 8, 6, 4, 2, 0]


def test_legacy_histogram_keeps_its_fields_beside_its_tensor():
    histogram = wire_pb2.LegacyHistogram(
        min=-1.0, max=2.0, num=3.0, sum=4.0, sum_squares=5.0, bucket_limit=[0.5, 1e308]
    )
    _, sent = encoded(chunk_of(tensors(8, histogram=histogram), tensors(8, tag="plain")))
    tensor = sent.series[0].tensors.tensors[0]
    assert (tensor.dtype, list(tensor.shape), tensor.data) == (4, [8], bytes(8))
    assert list(tensor.histogram.bucket_limit) == [0.5, 1e308]
    assert (tensor.histogram.min, tensor.histogram.sum_squares) == (-1.0, 5.0)
    assert not sent.series[1].tensors.tensors[0].HasField("histogram")


def test_blobs_travel_inline_or_by_digest():
    small, large = b"", b"x" * 1001
    segment, sent = encoded(chunk_of(blobs(small, large, large)))
    digest = hashlib.sha256(large).digest()
    sources = sent.series[0].blob_sequences.sequences[0].blobs
    assert sources[0].WhichOneof("source") == "content"
    assert (sources[1].reference.sha256, sources[1].reference.size) == (digest, 1001)
    assert segment.blobs == {digest: large}
    assert segment.counts["blobs"] == 3


def test_content_types_travel_beside_their_clips():
    columns = BlobSequencePoints(
        STEPS, WALL_TIMES, [[b"a"], [b"a"], [b"b", b"c"]], ["audio/x-my", "ж", ""]
    )
    _, sent = encoded(chunk_of(SeriesPoints("clips", "audio", b"m", columns)))
    sequences = sent.series[0].blob_sequences.sequences
    assert [(len(each.blobs), each.logged_content_type) for each in sequences] == [
        (1, "audio/x-my"),
        (1, "ж"),
        (2, ""),
    ]


def test_inline_blobs_over_request_size_are_put_first():
    contents = [bytes([number]) * 900 for number in range(20)]
    segment, _ = encoded(
        chunk_of(blobs(*contents)), limits=WireLimits(5000, 1000, 1 << 30, 1 << 20, 100, 1 << 20)
    )
    assert len(segment.body) < 5000
    assert len(segment.blobs) == 20


def test_tensor_over_limit_travels_by_its_digest():
    limits = replace(LIMITS, batch_bytes_max=8 << 20, tensor_object_bytes_max=64 << 20)
    segment, sent = encoded(
        chunk_of(tensors(1 << 20, "small"), tensors((1 << 20) + 1, "large")), limits=limits
    )
    (small,), (large,) = (series.tensors.tensors for series in sent.series)
    assert (len(small.data), small.HasField("reference")) == (1 << 20, False)
    assert (large.data, large.reference.size) == (b"", (1 << 20) + 1)
    assert segment.blobs == {large.reference.sha256: bytes((1 << 20) + 1)}


def test_tensors_too_many_for_one_request_are_put_before_it():
    limits = replace(
        LIMITS, batch_bytes_max=4 << 20, tensor_bytes_max=3 << 20, tensor_object_bytes_max=64 << 20
    )
    several = [tensors((2 << 20) + number, str(number)) for number in range(3)]
    segment, sent = encoded(chunk_of(*several, tensors(500_000, "small")), limits=limits)
    assert [series.tensors.tensors[0].HasField("reference") for series in sent.series] == [
        True
    ] * 3 + [False]
    assert len(segment.blobs) == 3


def test_server_without_tensor_objects_is_sent_no_reference():
    segment, sent = encoded(chunk_of(tensors(2 << 20)))
    assert not sent.series[0].tensors.tensors[0].HasField("reference")
    assert segment.blobs == {}
    assert len(segment.body) > LIMITS.batch_bytes_max  # the caller drops it and counts it


def test_metadata_of_hparams_is_sent_again_for_its_wall_time():
    repeated = SeriesPoints("h", "hparams", b"metadata", tensors(0).columns)
    segment, sent = encoded(chunk_of(repeated), acknowledged={"h": b"metadata"})
    assert (sent.series[0].summary_metadata, segment.metadata) == (b"metadata", {"h": b"metadata"})


def test_metadata_is_sent_until_acknowledged_or_changed():
    segment, sent = encoded(chunk_of(scalars()))
    assert sent.series[0].summary_metadata == b"metadata"
    assert segment.metadata == {"loss": b"metadata"}
    segment, sent = encoded(chunk_of(scalars()), acknowledged={"loss": b"metadata"})
    assert sent.series[0].summary_metadata == b""
    assert segment.metadata == {}
    _, sent = encoded(chunk_of(scalars(metadata=b"other")), acknowledged={"loss": b"metadata"})
    assert sent.series[0].summary_metadata == b"other"


def test_batch_of_several_segments_is_their_bodies_end_to_end():
    batch = Batch(bytes_max=1 << 20)
    for tag in ("a", "b", "c"):
        batch.add(encoded(chunk_of(scalars(tag)))[0], None)
    sent = wire_pb2.WriteBatch.FromString(batch.body())
    assert [segment.series[0].tag for segment in sent.segments] == ["a", "b", "c"]
    assert batch.body_bytes == len(batch.body())


def test_batch_takes_nothing_over_servers_limit():
    segment = encoded(chunk_of(tensors(600)))[0]
    batch = Batch(bytes_max=1000)
    assert batch.fits(segment)
    batch.add(segment, None)
    assert not batch.fits(segment)


def test_dropping_largest_series_counts_its_points():
    chunk = drop_largest_series(
        chunk_of(tensors(500, tag="large"), tensors(5, tag="small"), skipped={"bad": 1})
    )
    assert [series.tag for series in chunk.series] == ["small"]
    assert chunk.skipped == {"bad": 1, "too much in one record for one request": 1}
