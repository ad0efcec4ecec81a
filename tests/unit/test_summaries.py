"""Summary values as points of their data class; TensorBoard 2.21's own conversion is the oracle for
real files.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import summary_pb2
from tensorboard.data_compat import migrate_value
from tensorboard.util import tensor_util

from support.event_files import (
    PNG,
    audio_event,
    encode_records,
    graph_event,
    hparams_event,
    image_event,
    keras_graph_event,
    plugin_event,
    run_metadata_event,
    scalar_event,
    string_tensor_proto,
    summary_event,
    tensor_proto,
    text_event,
    version_event,
)
from support.hparams_records import content_of, hparams_of, record
from support.python39 import OLD_PROTOBUF, zip_strict
from support.read_events import LIMITS, join, read_all
from tbupload.events import framing, skip_reasons
from tbupload.events.decode import legacy
from tbupload.events.decode.decoder import ChunkDecoder
from tbupload.events.decode.file_parts import FilePart
from tbupload.events.decode.record_rows import PADDING_BYTES
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import Chunk, Tensor
from tbupload.events.skip_reasons import ValueRefused
from tbupload.events.tag_registry import TagRegistry
from tbwire import tensorboard_pb2 as pb
from tbwire import tensors

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(DATA.rglob("*tfevents*"))


def decode(*events, limits=LIMITS, series_filter=None):
    frames = framing.find_records(buffer := encode_records(events), 0)
    part = FilePart(TagRegistry(series_filter or SeriesFilter(), limits), len(frames.starts))
    ChunkDecoder(buffer + bytes(PADDING_BYTES), frames, [part], limits).decode()
    return join([Chunk(0, len(buffer), 0, 0, part.series, part.skipped)])


def value_of(event, tag="t", **options):
    series, skipped = decode(event, **options)
    assert not skipped
    ((_, _, value),) = series[tag].points
    return value


def reason_of(event, **options):
    series, skipped = decode(event, **options)
    assert not series
    ((reason, count),) = skipped.items()
    assert count == 1
    return reason


def make_ndarray(proto):
    if proto.dtype == tensors.BFLOAT16:  # TensorBoard needs TensorFlow for these
        return np.frombuffer(proto.tensor_content, "<u2").reshape(
            [dim.size for dim in proto.tensor_shape.dim]
        )
    return tensor_util.make_ndarray(proto)


def tensorboard_points(path):
    """Read a file with TensorBoard: by tag its metadata, and its points as numpy arrays."""
    series = {}
    for event in EventFileLoader(str(path)).Load():
        for value in event.summary.value:
            _, points = series.setdefault(value.tag or value.node_name, (value.metadata, []))
            points.append((event.step, event.wall_time, make_ndarray(value.tensor)))
    return series


def as_array(value):
    if isinstance(value, list):
        return np.array(value, dtype=object)
    if isinstance(value, Tensor):
        return tensors.to_numpy(value.dtype, value.shape, value.data)
    dtype, data = value
    return np.frombuffer(data, dtype)[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DATA)))
def test_real_files_are_read_as_tensorboard_reads_them(path):
    series, _ = read_all(path)
    expected = tensorboard_points(path)
    assert set(series) == set(expected)
    for tag, (metadata, points) in expected.items():
        ours = series[tag]
        assert ours.plugin == metadata.plugin_data.plugin_name
        is_united = ours.plugin == "hparams" and len(points) > 1  # TensorBoard keeps one of them
        if is_united:
            assert ours.metadata.data_class == metadata.data_class
        elif metadata.data_class:
            assert ours.metadata.SerializeToString() == metadata.SerializeToString()
        else:
            assert ours.metadata.data_class == pb.DATA_CLASS_TENSOR
        assert [(step, np.frombuffer(wall)[0]) for step, wall, _ in ours.points] == [
            point[:2] for point in points
        ]
        for (*_, value), (*_, theirs) in zip_strict(ours.points, points):
            array = as_array(value)
            assert array.shape == theirs.shape
            assert array.tolist() == theirs.tolist() or array.tobytes() == theirs.tobytes()


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(st.tuples(finite, st.sampled_from([0.0, 0.0, 1.0, 2.5, 1e300])), max_size=8),
    finite,
    finite,
)
def test_legacy_histogram_becomes_tensor_tensorboard_makes(buckets, low, high):
    histogram = pb.HistogramProto(
        min=low,
        max=high,
        num=3,
        bucket_limit=[limit for limit, _ in buckets],
        bucket=[count for _, count in buckets],
    )
    encoded = pb.Summary.Value(tag="t", histo=histogram).SerializeToString()
    with np.errstate(over="ignore"):
        theirs = tensor_util.make_ndarray(
            migrate_value(summary_pb2.Summary.Value.FromString(encoded)).tensor
        )
    tensor = legacy.histogram_tensor(histogram)
    assert (tensor.dtype, tensor.shape, tensor.data) == (1, theirs.shape, theirs.tobytes())
    assert tensor.histogram.SerializeToString() == histogram.SerializeToString()


def test_histogram_with_fewer_limits_than_counts_need_is_refused():
    histogram = pb.HistogramProto(bucket_limit=[1], bucket=[1, 1, 1])
    with pytest.raises(ValueRefused):
        legacy.histogram_tensor(histogram)
    event = summary_event(0, 1.0, pb.Summary.Value(tag="t", histo=histogram))
    assert reason_of(event) == skip_reasons.HISTOGRAM_MALFORMED


@pytest.mark.parametrize("style", ["legacy", "tensor"])
def test_image_is_width_height_and_bytes(style):
    assert value_of(image_event("t", 0, [PNG], style=style, width=3, height=2)) == [b"3", b"2", PNG]


@pytest.mark.parametrize("style", ["legacy", "tensor"])
def test_audio_is_its_clips_without_labels(style):
    assert value_of(audio_event("t", 0, [b"clip"], style=style)) == [b"clip"]
    series, _ = decode(audio_event("t", 0, [b"clip"], style=style))
    assert series["t"].metadata.data_class == pb.DATA_CLASS_BLOB_SEQUENCE


@pytest.mark.parametrize(
    "logged", ["audio/wav", "audio/x-my", "", "ж" * 255, 'text/html; x="\r\n\x1b"', " "]
)
def test_legacy_audio_keeps_its_content_type(logged):
    event = audio_event("t", 0, [b"clip"], style="legacy", content_type=logged)
    assert decode(event)[0]["t"].content_types == [logged]
    kept_nowhere = replace(LIMITS, logged_content_type_chars_max=0)
    assert decode(event, limits=kept_nowhere)[0]["t"].content_types == [""]
    assert decode(audio_event("t", 0, [b"clip"]))[0]["t"].content_types == [""]


def test_audio_content_type_over_limit_or_with_nul_is_refused():
    def audio(logged):
        return audio_event("t", 0, [b"clip"], style="legacy", content_type=logged)

    assert reason_of(audio("x" * 256)) == "content type of audio over the limit of 255 characters"
    assert reason_of(audio("audio/\0")) == skip_reasons.CONTENT_TYPE_NUL
    kept_nowhere = replace(LIMITS, logged_content_type_chars_max=0)
    assert value_of(audio("\0" * 256), limits=kept_nowhere) == [b"clip"]


def test_audio_of_several_clips_and_of_none():
    assert value_of(audio_event("t", 0, [b"one", b"", b"three"])) == [b"one", b"", b"three"]
    assert value_of(audio_event("t", 0, [])) == []


@pytest.mark.parametrize(
    ("event", "tag", "plugin", "blobs"),
    [
        (graph_event(b"graph"), "__run_graph__", "graphs", [b"graph"]),
        (run_metadata_event("t", 3, b"meta"), "t", "graph_tagged_run_metadata", [b"meta"]),
        (keras_graph_event("t", 0, "{}"), "t", "graph_keras_model", [b"{}"]),
        (
            plugin_event("graph_run_metadata", "t", 0, string_tensor_proto([b"m"], ())),
            "t",
            "graph_run_metadata",
            [b"m"],
        ),
    ],
)
def test_graphs_are_blob_sequences_of_one_blob(event, tag, plugin, blobs):
    series, skipped = decode(event)
    assert not skipped
    assert (series[tag].plugin, series[tag].metadata.data_class) == (
        plugin,
        pb.DATA_CLASS_BLOB_SEQUENCE,
    )
    assert [value for *_, value in series[tag].points] == [blobs]


def test_text_is_tensor_of_strings_of_its_shape():
    assert value_of(text_event("t", 0, "über")) == Tensor(
        7, (), tensors.pack_strings(["über".encode()])
    )
    assert value_of(text_event("t", 0, ["a", ""])) == Tensor(
        7, (2,), tensors.pack_strings([b"a", b""])
    )


def test_hparams_without_tensor_get_empty_one():
    series, _ = decode(hparams_event("t", b"first"), hparams_event("t", b"second"))
    assert [value for *_, value in series["t"].points] == [Tensor(1, (0,), b"")] * 2
    assert series["t"].metadata.plugin_data.content == b"second"
    assert series["t"].metadata.data_class == pb.DATA_CLASS_TENSOR


def start_event(values, wall_time):
    return hparams_event("t", content_of(record(values)), wall_time)


@pytest.mark.parametrize("times", [(1.0, 2.0, 3.0), (3.0, 1.0, 2.0), (2.0, 3.0, 1.0)])
def test_hparams_of_chunk_are_united_by_wall_time(times):
    logged = [{"a": 1, "b": 1}, {"a": 2, "c": 2}, {"c": 3}]
    expected = {}
    for _, values in sorted(zip_strict(times, logged)):
        expected |= values
    series, skipped = decode(*map(start_event, logged, times))
    assert hparams_of(series["t"].metadata.SerializeToString()) == expected
    assert (len(series["t"].points), skipped) == (3, {})


def test_hparams_of_next_chunk_are_united_for_themselves():
    registry = TagRegistry(SeriesFilter(), LIMITS)
    united = []
    for events in ([{"a": 1}, {"b": 1}], [{"c": 1}]):
        buffer = encode_records([start_event(values, 1.0) for values in events])
        frames = framing.find_records(buffer, 0)
        part = FilePart(registry, len(frames.starts))
        ChunkDecoder(buffer + bytes(PADDING_BYTES), frames, [part], LIMITS).decode()
        united.append(hparams_of(part.series[0].metadata))
    assert united == [{"a": 1, "b": 1}, {"c": 1}]


def test_hparams_of_value_that_is_not_sent_are_left_out():
    malformed = start_event({"b": 1}, 2.0)
    malformed.summary.value[0].tensor.CopyFrom(pb.TensorProto(dtype=1, tensor_content=b"1"))
    never = start_event({"c": 1}, np.nan)
    series, skipped = decode(start_event({"a": 1}, 1.0), malformed, never)
    assert hparams_of(series["t"].metadata.SerializeToString()) == {"a": 1}
    assert (len(series["t"].points), sum(skipped.values())) == (1, 2)


def test_hparams_over_limit_are_skipped_alone():
    limits = replace(LIMITS, metadata_bytes_max=600)
    logged = [{"a": "x" * 300}, {"b": "y" * 300}, {"c": 1}, {"d": "z" * 600}]
    series, skipped = decode(
        *(start_event(values, float(at)) for at, values in enumerate(logged)), limits=limits
    )
    assert set(hparams_of(series["t"].metadata.SerializeToString())) == {"a", "c"}
    assert skipped == {
        "hyperparameters of one run over the limit of 600 bytes": 1,
        "summary metadata over the limit of 600 bytes": 1,
    }


def test_any_other_plugin_keeps_its_first_metadata():
    series, _ = decode(
        *(
            plugin_event("text", "t", 0, tensor_proto(1.0), content=content)
            for content in (b"1", b"2")
        )
    )
    assert series["t"].metadata.plugin_data.content == b"1"


def test_plugin_unknown_uses_declared_data_class():
    tensor = string_tensor_proto([b"x", b"y"])
    assert value_of(plugin_event("mine", "t", 0, tensor)) == Tensor(
        7, (2,), tensors.pack_strings([b"x", b"y"])
    )
    assert value_of(
        plugin_event("mine", "t", 0, tensor, data_class=pb.DATA_CLASS_BLOB_SEQUENCE)
    ) == [b"x", b"y"]
    scalar = plugin_event(
        "mine", "t", 0, tensor_proto(np.float32(2)), data_class=pb.DATA_CLASS_SCALAR
    )
    assert as_array(value_of(scalar)) == 2
    assert value_of(plugin_event("mine", "t", 0, tensor_proto(np.float32(2)))).shape == ()


def test_data_class_from_future_is_tensor():
    series, _ = decode(plugin_event("mine", "t", 0, tensor_proto(1.0), data_class=77))
    assert series["t"].metadata.data_class == pb.DATA_CLASS_TENSOR


def test_what_is_no_data_is_passed_over_silently():
    others = [
        pb.Event(log_message=b"x"),
        pb.Event(session_log=b"x"),
        pb.Event(meta_graph_def=b"x"),
        pb.Event(),
        summary_event(0, 1.0),
        version_event(),
    ]
    assert decode(*others) == ({}, {})


def test_tensor_of_oldest_kind_is_named_by_its_node():
    value = pb.Summary.Value(node_name="node", tensor=tensor_proto(1.0))
    value.metadata.plugin_data.plugin_name = "text"
    series, _ = decode(summary_event(0, 1.0, value))
    assert list(series) == ["node"]


def test_display_name_and_description_of_legacy_value_are_kept():
    value = pb.Summary.Value(tag="t", simple_value=1)
    value.metadata.display_name, value.metadata.summary_description = "shown", "told"
    series, _ = decode(summary_event(0, 1.0, value))
    assert series["t"].metadata == pb.SummaryMetadata(
        plugin_data={"plugin_name": "scalars"},
        display_name="shown",
        summary_description="told",
        data_class=1,
    )


# Scalars


@pytest.mark.parametrize(
    "dtype", ["float64", "int32", "int64", "uint8", "int8", "int16", "uint16", "uint32", "uint64"]
)
def test_scalars_of_other_types_become_float64(dtype):
    assert value_of(plugin_event("scalars", "t", 0, tensor_proto(np.array(100, dtype)))) == (
        "float64",
        np.float64(100).tobytes(),
    )


@pytest.mark.parametrize(
    ("tensor", "number"),
    [
        (tensor_proto(np.float16(0.1)), float(np.float16(0.1))),
        (pb.TensorProto(dtype=14, half_val=[0x3FC0]), 1.5),
        (pb.TensorProto(dtype=10, bool_val=[True]), 1.0),
        (tensor_proto(np.int64(2**53 + 1)), float(2**53)),
        (pb.TensorProto(dtype=3), 0.0),
        (tensor_proto([[3]]), 3.0),
    ],
)
def test_numbers_of_scalars(tensor, number):
    assert as_array(value_of(plugin_event("scalars", "t", 0, tensor))) == number


@pytest.mark.parametrize(
    "tensor",
    [
        tensor_proto([1.0, 2.0]),
        tensor_proto(np.zeros(0)),
        string_tensor_proto([b"1"], ()),
        tensor_proto(np.complex64(1)),
    ],
)
def test_scalar_that_is_not_one_real_number_is_refused(tensor):
    assert reason_of(plugin_event("scalars", "t", 0, tensor)) == skip_reasons.NOT_ONE_NUMBER


SIGNALLING_NAN = b"\x01\x00\x80\x7f"


def test_every_nan_keeps_its_bits():
    simple = pb.Summary.Value.FromString(b"\x15" + SIGNALLING_NAN)
    simple.tag = "t"
    content = plugin_event(
        "scalars", "t", 0, pb.TensorProto(dtype=1, tensor_content=SIGNALLING_NAN)
    )
    values = plugin_event(
        "scalars", "t", 0, pb.TensorProto.FromString(b"\x08\x01\x2a\x04" + SIGNALLING_NAN)
    )
    events = [summary_event(0, 1.0, simple), content, values]
    if OLD_PROTOBUF:
        events.remove(values)  # see `_float_bits`
    for event in events:
        assert value_of(event) == ("float32", SIGNALLING_NAN)


def test_signalling_nan_beside_wider_numbers_stays_nan():
    wide = plugin_event("scalars", "t", 0, tensor_proto(1.5))
    series, _ = decode(
        wide,
        plugin_event("scalars", "t", 1, pb.TensorProto(dtype=1, tensor_content=SIGNALLING_NAN)),
    )
    assert np.isnan(as_array(series["t"].points[1][2]))


# Tensors


def shaped(shape, **fields):
    return pb.TensorProto(tensor_shape={"dim": [{"size": size} for size in shape]}, **fields)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).astype(dtype).reshape(2, 3)
        for dtype in [
            "f4",
            "f8",
            "i4",
            "u1",
            "i2",
            "i1",
            "c8",
            "i8",
            "?",
            "u2",
            "c16",
            "f2",
            "u4",
            "u8",
        ]
    ],
    ids=lambda array: str(array.dtype),
)
def test_tensors_of_every_type_are_same_by_content_and_by_values(array):
    proto = tensor_proto(array)
    other = shaped([2, 3], dtype=proto.dtype)
    if array.dtype.kind == "c":
        flat = [part for number in array.ravel() for part in (number.real, number.imag)]
        getattr(other, "scomplex_val" if array.dtype == "c8" else "dcomplex_val").extend(flat)
    else:
        column = {
            "f4": "float",
            "f8": "double",
            "i8": "int64",
            "b1": "bool",
            "u4": "uint32",
            "u8": "uint64",
        }
        numbers = (
            array.ravel().view("u2").tolist() if array.dtype == "f2" else array.ravel().tolist()
        )
        name = "half" if array.dtype == "f2" else column.get(array.dtype.str[1:], "int")
        getattr(other, f"{name}_val").extend(numbers)
    expected = Tensor(proto.dtype, (2, 3), array.tobytes())
    assert value_of(plugin_event("p", "t", 0, proto)) == expected
    assert value_of(plugin_event("p", "t", 0, other)) == expected


@pytest.mark.parametrize(
    ("proto", "elements"),
    [
        (shaped([3], dtype=1, float_val=[7]), [7, 7, 7]),
        (shaped([4], dtype=9, int64_val=[1, 2]), [1, 2, 2, 2]),
        (shaped([2], dtype=2), [0, 0]),
        (shaped([2], dtype=8, scomplex_val=[1, 2]), [1 + 2j, 1 + 2j]),
        (shaped([2], dtype=7, string_val=[b"s"]), [b"s", b"s"]),
        (shaped([2], dtype=7), [b"", b""]),
        (shaped([2, 0], dtype=1), []),
        (shaped([2], dtype=23, uint64_val=[1, 2**64 - 1]), [1, 2**64 - 1]),
        (shaped([2], dtype=9, int64_val=[-1, -(2**63)]), [-1, -(2**63)]),
    ],
)
def test_missing_elements_repeat_last(proto, elements):
    value = value_of(plugin_event("p", "t", 0, proto))
    assert as_array(value).ravel().tolist() == elements


@pytest.mark.parametrize(
    "proto",
    [
        shaped([2], dtype=1, float_val=[1, 2, 3]),
        shaped([2], dtype=1, tensor_content=bytes(7)),
        shaped([-1], dtype=1, float_val=[1]),
        shaped([2**40, 2**40], dtype=1, float_val=[1]),
        shaped([0, 2**62], dtype=1),
        shaped([0], dtype=1, tensor_content=bytes(4)),
        shaped([1], dtype=8, scomplex_val=[1]),
        shaped([1], dtype=7, string_val=[b"", b""]),
        shaped([1], dtype=7, tensor_content=b"\1a"),
        pb.TensorProto(dtype=1, tensor_shape={"unknown_rank": True}),
    ],
)
def test_malformed_tensor_is_refused(proto):
    assert reason_of(plugin_event("p", "t", 0, proto)) == skip_reasons.TENSOR_MALFORMED


@pytest.mark.parametrize("dtype", [0, 11, 12, 20, 21, 101, 999, -1])
def test_data_type_we_do_not_carry_is_refused(dtype):
    assert (
        reason_of(plugin_event("p", "t", 0, pb.TensorProto(dtype=dtype)))
        == skip_reasons.TENSOR_TYPE_UNSUPPORTED
    )


# Limits: at the limit kept, over it refused, and the reason names it


def test_tensors_over_limit():
    limits = replace(LIMITS, tensor_bytes_max=40)
    tensor = plugin_event("p", "t", 0, tensor_proto(np.zeros(10, "f4")))
    assert value_of(tensor, limits=limits).shape == (10,)
    for event in (
        plugin_event("p", "t", 0, tensor_proto(np.zeros(11, "f4"))),
        plugin_event("p", "t", 0, shaped([2**20, 2**20], dtype=1, float_val=[1])),
        plugin_event("p", "t", 0, shaped([2**50], dtype=7)),
        plugin_event("text", "t", 0, string_tensor_proto([b"x" * 37])),
        summary_event(
            0,
            1.0,
            pb.Summary.Value(tag="t", histo={"bucket": [1] * 4, "bucket_limit": [1, 2, 3, 4]}),
        ),
    ):
        assert reason_of(event, limits=limits) == "tensor over the limit of 40 bytes"


def test_tensors_of_too_many_dimensions():
    assert value_of(plugin_event("p", "t", 0, shaped([1] * 64, dtype=1))).shape == (1,) * 64
    assert (
        reason_of(plugin_event("p", "t", 0, shaped([1] * 65, dtype=1)))
        == "tensor over the limit of 64 dimensions"
    )


def test_blobs_over_limits():
    limits = replace(LIMITS, blob_bytes_max=100, blob_sequence_length_max=3)
    image = plugin_event("images", "t", 0, string_tensor_proto([b"x", b"y", b"z"]))
    assert value_of(image, limits=limits) == [b"x", b"y", b"z"]
    long = plugin_event("images", "t", 0, string_tensor_proto([b"x"] * 4))
    assert reason_of(long, limits=limits) == "blob sequence over the limit of 3 blobs"
    assert (
        reason_of(graph_event(bytes(101)), limits=limits)
        == "blob sequence over the limit of 100 bytes"
    )
    assert (
        reason_of(image_event("t", 0, [bytes(101)], style="legacy"), limits=limits)
        == "blob over the limit of 100 bytes"
    )


@pytest.mark.parametrize("shape", [(), (1, 1)])
def test_blob_sequence_that_is_no_vector_is_refused(shape):
    event = plugin_event("images", "t", 0, string_tensor_proto([b"x"], shape))
    assert reason_of(event) == skip_reasons.NOT_A_VECTOR
    assert (
        reason_of(plugin_event("images", "t", 0, tensor_proto([1.0]))) == skip_reasons.NOT_A_VECTOR
    )


def test_names_and_metadata_over_limits():
    limits = replace(LIMITS, name_chars_max=7, metadata_bytes_max=60)
    assert value_of(scalar_event("漢" * 7, 0, 1), "漢" * 7, limits=limits)
    assert (
        reason_of(scalar_event("漢" * 8, 0, 1), limits=limits)
        == "tag or plugin name over the limit of 7 characters"
    )
    long = plugin_event("p", "t", 0, tensor_proto(1.0), content=bytes(60))
    assert reason_of(long, limits=limits) == "summary metadata over the limit of 60 bytes"


@pytest.mark.parametrize(("tag", "plugin"), [("a\0", "p"), ("a", "p\0")])
def test_nul_in_name_is_refused(tag, plugin):
    assert reason_of(plugin_event(plugin, tag, 0, tensor_proto(1.0))) == skip_reasons.TAG_NUL


@pytest.mark.parametrize(
    "offered", [None, {}, {"display_name": "x"}, {"data_class": pb.DATA_CLASS_SCALAR}]
)
@pytest.mark.parametrize("proto", [tensor_proto(1.0), string_tensor_proto([b"x", b"y"])])
def test_tensor_of_no_plugin_stays_as_it_is(offered, proto):
    metadata = None if offered is None else pb.SummaryMetadata(**offered)
    value = pb.Summary.Value(tag="t", tensor=proto, metadata=metadata)
    series, skipped = decode(summary_event(0, 1.0, value))
    assert (series["t"].plugin, len(series["t"].points), skipped) == ("", 1, {})
    assert isinstance(series["t"].points[0][2], Tensor)
    kept = pb.SummaryMetadata(
        data_class=pb.DATA_CLASS_TENSOR, display_name=value.metadata.display_name
    )
    assert series["t"].metadata == kept


def test_value_without_content_does_not_say_what_its_tag_is():
    nothing = pb.Summary.Value(tag="t", metadata=pb.SummaryMetadata(display_name="x"))
    series, skipped = decode(summary_event(0, 1.0, nothing), scalar_event("t", 1, 1))
    assert (series["t"].plugin, skipped) == ("scalars", {skip_reasons.EMPTY_VALUE: 1})


def test_values_without_content_or_time_are_refused():
    metadata = pb.SummaryMetadata(plugin_data={"plugin_name": "text"})
    for value, reason in [
        (pb.Summary.Value(tag="t", metadata=metadata), skip_reasons.EMPTY_VALUE),
        (
            pb.Summary.Value(tag="t", metadata=metadata, obsolete_old_style_histogram=b"x"),
            skip_reasons.VALUE_MISMATCH,
        ),
        (pb.Summary.Value(tag="t", obsolete_old_style_histogram=b"x"), skip_reasons.VALUE_MISMATCH),
        (pb.Summary.Value(tag="t"), skip_reasons.EMPTY_VALUE),
        (pb.Summary.Value(tag="\0"), skip_reasons.EMPTY_VALUE),
        (
            pb.Summary.Value(tag="t", metadata={"plugin_data": {"plugin_name": "hparams\0"}}),
            skip_reasons.EMPTY_VALUE,
        ),
        (
            pb.Summary.Value(tag="\0", metadata={"plugin_data": {"plugin_name": "hparams"}}),
            skip_reasons.TAG_NUL,
        ),
    ]:
        assert reason_of(summary_event(0, 1.0, value)) == reason
    assert reason_of(text_event("t", 0, "x", float("nan"))) == skip_reasons.WALL_TIME_NOT_FINITE
    assert (
        reason_of(summary_event(0, float("nan"), pb.Summary.Value(tag="t")))
        == skip_reasons.EMPTY_VALUE
    )


def test_bytes_that_are_no_event_are_refused():
    assert reason_of(b"\xff\xff") == skip_reasons.NOT_AN_EVENT


# Filters


def test_what_filter_leaves_out_is_not_counted():
    bad = plugin_event("images", "bad", 0, tensor_proto([1.0]))
    events = [
        bad,
        scalar_event("kept", 0, 1),
        *(scalar_event("t", step, 1, float("nan")) for step in range(20)),
    ]
    series, skipped = decode(*events, series_filter=SeriesFilter(plugins=frozenset({"scalars"})))
    assert (list(series), skipped) == (["kept"], {skip_reasons.WALL_TIME_NOT_FINITE: 20})
