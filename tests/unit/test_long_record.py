"""Records too long to be loaded give the same points as loaded ones; their blobs stay in the file."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.event_files import (
    PNG,
    audio_event,
    graph_event,
    histogram_event,
    hparams_event,
    image_event,
    keras_graph_event,
    plugin_event,
    run_metadata_event,
    scalar_event,
    spoil_payload,
    string_tensor_proto,
    summary_event,
    tensor_proto,
    text_event,
    version_event,
    write_records,
)
from support.read_events import LIMITS, join, open_file, read_all, read_chunks
from tbupload.errors import FileReplaced
from tbupload.events import skip_reasons
from tbupload.events.filters import SeriesFilter
from tbupload.events.large_records import field_placeholders, long_record, record_skeleton
from tbupload.events.points import FileBlob, Tensor
from tbupload.http import blob_upload
from tbupload.limits import CHUNK_BYTES
from tbwire import tensorboard_pb2 as pb

STREAMED = replace(LIMITS, chunk_bytes=1, streamed_record_bytes_min=0, skeleton_field_bytes_max=3)
"""Every record is read as a long one, every field of more than three bytes as a large one."""


def in_memory(blob):
    """Return a blob's bytes, after checking its digest."""
    if isinstance(blob, bytes):
        return blob
    with blob_upload._open_reader(blob) as read_bytes:
        content = read_bytes(0, len(blob))
    assert hashlib.sha256(content).digest() == blob.sha256
    return content


def read(path, limits, **options):
    """Return every series of a file with its blobs in memory, the skipped counts, and the number of
    blobs that stayed in the file.
    """
    series, skipped = read_all(path, limits=limits, **options)
    count = 0
    for columns in series.values():
        for index, (step, wall_time, value) in enumerate(columns.points):
            if isinstance(value, list):
                count += sum(isinstance(blob, FileBlob) for blob in value)
                columns.points[index] = (step, wall_time, [in_memory(blob) for blob in value])
            elif isinstance(value, Tensor) and value.in_file is not None:
                count += 1
                columns.points[index] = (
                    step,
                    wall_time,
                    replace(value, data=in_memory(value.in_file), in_file=None),
                )
    return series, skipped, count


def assert_same_both_ways(path, limits=LIMITS, **options):
    limits = replace(limits, chunk_bytes=1)
    streamed = replace(limits, streamed_record_bytes_min=0, skeleton_field_bytes_max=3)
    loaded, streamed_ = read(path, limits, **options), read(path, streamed, **options)
    assert streamed_[:2] == loaded[:2]
    assert list(streamed_[0]) == list(loaded[0])
    assert loaded[2] == 0
    return streamed_


EVENTS = [
    version_event(),
    image_event("image/1", 1, [PNG, b"another image"], width=100, height=20),
    image_event("image/2", 2, [PNG * 3], style="legacy", width=1234),
    image_event("image/none", 2, []),
    audio_event("clip/1", 1, [b"a clip", b"another clip"]),
    audio_event("clip/2", 2, [b"a legacy clip"], style="legacy"),
    audio_event(
        "clip/3",
        2,
        [b"one of a type of its own"],
        style="legacy",
        content_type="audio/x-" + "y" * 240,
    ),
    audio_event(
        "clip/4", 2, [b"one of too long a type"], style="legacy", content_type="z" * 60_000
    ),
    graph_event(b"a graph definition"),
    graph_event(b""),
    run_metadata_event("step 7", 7, b"some metadata of a run"),
    keras_graph_event("keras", 1, '{"config": "of a model"}'),
    text_event("note", 3, ["several", "texts", "of some length"]),
    text_event("note/one", 3, "one text"),
    hparams_event("_hparams_/session_start_info", b"hyperparameters"),
    histogram_event("weights", 4, [(0, 1, 5), (1, 2, 6), (2, 4, 0)]),
    histogram_event("weights/legacy", 4, [(0, 1, 5), (1, 2, 6)], style="legacy"),
    plugin_event(
        "mesh", "cloud_VERTEX", 5, tensor_proto(np.arange(12, dtype=np.float32), "values")
    ),
    plugin_event("mesh", "cloud_COLOR", 5, tensor_proto(np.arange(12, dtype=np.int64), "values")),
    plugin_event("unknown", "kept", 5, tensor_proto(np.arange(12))),
    plugin_event("images", "image/wrong", 5, tensor_proto(np.arange(12))),
    plugin_event("text", "too many", 5, string_tensor_proto([b"aaaaaa", b"bbbbbb"], [1])),
    plugin_event("text", "repeated", 5, string_tensor_proto([b"aaaaaa", b"bbbbbb"], [4])),
    scalar_event("loss", 1, 0.5),
    scalar_event("loss/tensor", 1, float("nan"), style="tensor"),
    pb.Event(log_message=b"a message for people", step=3, wall_time=1),
    pb.Event(meta_graph_def=b"nobody reads this", wall_time=1),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.WhichOneof("what"))
def test_long_record_values_equal_loaded_ones(tmp_path, event):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), event, scalar_event("after", 9, 1.0)])
    series, _, _ = assert_same_both_ways(path)
    assert "after" in series


def test_blobs_of_long_record_stay_in_file(tmp_path):
    path = tmp_path / "tfevents"
    write_records(path, EVENTS)
    assert assert_same_both_ways(path)[2] == 10


def mutated(payload, position, byte):
    """Return the payload with one byte changed."""
    spoilt = bytearray(payload)
    spoilt[position % len(payload)] = byte
    return bytes(spoilt)


@settings(max_examples=80)
@given(
    st.sampled_from(EVENTS),
    st.sampled_from(EVENTS),
    st.integers(0, 2**16),
    st.integers(0, 255),
    st.booleans(),
)
def test_event_that_was_written_wrongly_is_same_both_ways(
    tmp_path_factory, event, next_event, at, byte, joined
):
    path = tmp_path_factory.mktemp("wrong") / "tfevents"
    payload = mutated(event.SerializeToString(), at, byte)
    rest = next_event.SerializeToString()
    payloads = (
        [payload + rest] if joined else [payload, rest]
    )  # messages joined end to end are one, merged
    write_records(path, [version_event(), *payloads])
    assert_same_both_ways(path)


def test_limits_are_same_and_what_is_over_one_is_never_digested(tmp_path, monkeypatch):
    path = tmp_path / "tfevents"
    write_records(path, EVENTS)
    limits = replace(
        LIMITS,
        blob_bytes_max=20,
        tensor_bytes_max=20,
        name_chars_max=8,
        metadata_bytes_max=40,
        blob_sequence_length_max=3,
    )
    _, skipped, _ = assert_same_both_ways(path, limits)
    assert {reason.split(" over ")[0] for reason in skipped if " over " in reason} >= {
        "blob",
        "tensor",
    }
    only = tmp_path / "only"
    write_records(
        only,
        [
            version_event(),
            graph_event(b"x" * 100),
            image_event("i", 1, [b"x" * 100], style="legacy"),
        ],
    )
    monkeypatch.setattr(field_placeholders.FieldPlaceholders, "_digest_field", None)
    assert read_all(only, limits=replace(STREAMED, blob_bytes_max=99))[1] == Counter(
        {"blob sequence over the limit of 99 bytes": 1, "blob over the limit of 99 bytes": 1}
    )


OBJECTS = [
    plugin_event("mesh", "floats", 1, tensor_proto(np.arange(12, dtype=np.float32), "values")),
    plugin_event("mesh", "doubles", 1, tensor_proto(np.arange(12, dtype=np.float64), "values")),
    plugin_event("mesh", "integers", 1, tensor_proto(np.arange(12, dtype=np.int64), "values")),
    plugin_event("mesh", "content", 1, tensor_proto(np.arange(12))),
    plugin_event(
        "mesh",
        "fewer",
        1,
        pb.TensorProto(dtype=1, tensor_shape={"dim": [{"size": 30}]}, float_val=[1, 2]),
    ),
    plugin_event(
        "mesh",
        "more",
        1,
        pb.TensorProto(dtype=1, tensor_shape={"dim": [{"size": 8}]}, float_val=[1] * 9),
    ),
    text_event("texts", 1, ["several", "", "texts", "x", "y", "of some length"]),
    text_event("text", 1, "one text that is a little longer"),
    plugin_event("text", "repeated", 1, string_tensor_proto([b"aaaaaa", b"bbbbbb"], [4])),
]


def test_tensor_that_becomes_object_is_same_both_ways(tmp_path):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), *OBJECTS])
    limits = replace(LIMITS, tensor_bytes_max=20, tensor_object_bytes_max=1_000)
    series, skipped, count = assert_same_both_ways(path, limits)
    assert (len(series), skipped, count) == (8, {skip_reasons.TENSOR_MALFORMED: 1}, 6)


def test_tensors_of_long_record_stay_in_file_when_many(tmp_path):
    path = tmp_path / "tfevents"
    tensor = tensor_proto(np.arange(1 << 20, dtype=np.float32))
    values = [
        plugin_event("other", f"tensor/{number}", 1, tensor).summary.value[0] for number in range(8)
    ]
    write_records(path, [version_event(), summary_event(1, 1.0, *values)])
    limits = replace(LIMITS, tensor_object_bytes_max=64 << 20)
    (decoded, skipped), peak_bytes = traced(lambda: read_all(path, limits=limits))
    tensors = [series.points[0][2] for series in decoded.values()]
    assert (len(tensors), skipped) == (8, {})
    assert [tensor.in_file is None for tensor in tensors] == [True] * 3 + [False] * 5
    assert peak_bytes < 24 << 20


def test_what_filter_leaves_out_is_not_digested(tmp_path, monkeypatch):
    path = tmp_path / "tfevents"
    write_records(path, EVENTS)
    series_filter = SeriesFilter(plugins=frozenset({"scalars", "text"}))
    assert_same_both_ways(path, series_filter=series_filter)
    monkeypatch.setattr(field_placeholders.FieldPlaceholders, "_digest_field", None)
    assert set(read_all(path, limits=STREAMED, series_filter=series_filter)[0]) >= {"loss", "note"}


def test_long_record_damaged_is_counted_once(tmp_path):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), image_event("image", 1, [PNG])])
    spoil_payload(path, 1, at=30)
    file = open_file(path, limits=STREAMED)
    assert len(read_chunks(file, final=False)) == 1
    write_records(path, [scalar_event("after", 9, 1.0)], append=True)
    series, skipped = join(read_chunks(file, final=False))
    assert set(series) == {"after"}
    assert skipped == {skip_reasons.RECORD_DAMAGED: 1}
    assert_same_both_ways(path)


@pytest.mark.parametrize(
    "event",
    [image_event("image", 1, [bytes(1 << 20)]), graph_event(bytes(1 << 20))],
    ids=["image", "graph"],
)
def test_file_that_ends_while_long_record_is_read_was_replaced(tmp_path, monkeypatch, event):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), event])
    file = open_file(path, limits=STREAMED)
    assert file.read() is not None
    is_sound = long_record.matches_checksum

    def cut_afterwards(*arguments):
        answer = is_sound(*arguments)
        path.write_bytes(path.read_bytes()[:-400_000])
        return answer

    monkeypatch.setattr(long_record, "matches_checksum", cut_afterwards)
    with pytest.raises(FileReplaced):
        file.read()


SKELETON_BYTES_MAX = 8 << 20
LARGE = bytes(SKELETON_BYTES_MAX + (1 << 20))
LARGE_IS_STREAMED = replace(LIMITS, streamed_record_bytes_min=1 << 20)


@pytest.fixture
def _small_skeletons(monkeypatch):
    """A limit that LARGE is over, as records are that take seconds to write."""
    for module in (long_record, record_skeleton):
        monkeypatch.setattr(module, "SKELETON_BYTES_MAX", SKELETON_BYTES_MAX)
    monkeypatch.setattr(record_skeleton, "_KEPT_BYTES_MAX", 4 * SKELETON_BYTES_MAX)


def large_tensor(shape, **fields):
    return plugin_event("other", "tensor", 1, pb.TensorProto(dtype=1, tensor_shape=shape, **fields))


def dims(*sizes):
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=size) for size in sizes])


@pytest.mark.usefixtures("_small_skeletons")
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: large_tensor(dims(len(LARGE) // 4), tensor_content=LARGE),
            "tensor over the limit of 4,194,304 bytes",
        ),
        (lambda: large_tensor(dims(3), tensor_content=LARGE), skip_reasons.TENSOR_MALFORMED),
        (
            lambda: text_event("text", 1, "x" * len(LARGE)),
            "tensor over the limit of 4,194,304 bytes",
        ),
        (
            lambda: text_event("x" * len(LARGE), 1, "x"),
            "tag or plugin name over the limit of 10,000 characters",
        ),
        (
            lambda: text_event("\u6f22" * (len(LARGE) // 3), 1, "x"),
            "tag or plugin name over the limit of 10,000 characters",
        ),
        (
            lambda: hparams_event("_hparams_", LARGE),
            "summary metadata over the limit of 4,194,304 bytes",
        ),
        (
            lambda: summary_event(
                1, 1.0, pb.Summary.Value(tag="old", obsolete_old_style_histogram=LARGE)
            ),
            skip_reasons.VALUE_MISMATCH,
        ),
        (
            lambda: summary_event(
                1, 1.0, pb.Summary.Value(tag="h", histo={"bucket": np.zeros(len(LARGE) // 8)})
            ),
            skip_reasons.RECORD_TOO_LARGE,
        ),
    ],
    ids=["content", "malformed", "text", "tag", "wide tag", "metadata", "obsolete", "histogram"],
)
def test_long_record_skips_oversized_values_unread(tmp_path, make, reason):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), make(), scalar_event("after", 9, 1.0)])
    (series, skipped), peak_bytes = traced(lambda: read_all(path, limits=LARGE_IS_STREAMED))
    assert (set(series), skipped) == ({"after"}, {reason: 1})
    assert peak_bytes < 3 * len(LARGE)


def traced(work):
    """Return the result of `work`, and the peak of Python's memory in bytes."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("_small_skeletons")
def test_string_tensor_with_many_items_is_counted_unread(tmp_path):
    path = tmp_path / "tfevents"
    proto = pb.TensorProto(dtype=7, tensor_shape=dims(3), string_val=[b""] * (1 << 20))
    write_records(
        path,
        [version_event(), plugin_event("text", "strings", 1, proto), scalar_event("after", 9, 1.0)],
    )
    series, skipped = read_all(path, limits=LARGE_IS_STREAMED)
    assert (set(series), skipped) == ({"after"}, {skip_reasons.TENSOR_MALFORMED: 1})


@pytest.mark.usefixtures("_small_skeletons")
def test_large_blob_is_read_in_little_memory(tmp_path):
    path = tmp_path / "tfevents"
    note = text_event("note", 1, "a text beside it").summary.value[0]
    large = image_event("image", 1, [LARGE * 3]).summary.value[0]
    write_records(
        path, [version_event(), summary_event(1, 1.0, note, large, note), graph_event(LARGE)]
    )
    (series, skipped), peak_bytes = traced(lambda: read_all(path, limits=LARGE_IS_STREAMED))
    blob = series["image"].points[0][2][2]
    assert blob == FileBlob(path, blob.offset, 3 * len(LARGE), hashlib.sha256(LARGE * 3).digest())
    assert in_memory(blob) == LARGE * 3
    assert (len(series["note"].points), len(series["__run_graph__"].points), skipped) == (2, 1, {})
    assert peak_bytes < 8 << 20


def test_tensors_over_request_size_are_skipped_singly(tmp_path):
    path = tmp_path / "tfevents"
    tensor = tensor_proto(np.zeros(1 << 20, np.float32))
    values = [
        plugin_event("other", f"tensor/{number}", 1, tensor).summary.value[0] for number in range(8)
    ]
    write_records(path, [version_event(), summary_event(1, 1.0, *values)])
    series, skipped = read_all(path)
    assert (len(series), skipped) == (6, {skip_reasons.RECORD_TOO_LARGE: 2})


def test_what_came_before_is_recalled_without_digesting_it(tmp_path, monkeypatch):
    path = tmp_path / "tfevents"
    write_records(path, [version_event(), image_event("image", 1, [bytes(CHUNK_BYTES)])])
    size = path.stat().st_size
    tensor = string_tensor_proto([b"1", b"1", PNG])
    write_records(
        path, [summary_event(2, 1.0, pb.Summary.Value(tag="image", tensor=tensor))], append=True
    )
    digested = []
    stream = field_placeholders.FieldPlaceholders._stream
    monkeypatch.setattr(
        field_placeholders.FieldPlaceholders,
        "_stream",
        lambda self, cut: digested.append(cut.offset) or stream(self, cut),
    )
    series, _ = join(read_chunks(open_file(path, start=size, limits=STREAMED)))
    assert series["image"].plugin == "images"
    assert min(digested) > size
