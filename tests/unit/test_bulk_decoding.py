"""Scalars decoded in bulk, by template, equal those that protobuf decodes: points and reasons, in
every mixture.
"""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.event_files import (
    histogram_event,
    hparams_event,
    plugin_event,
    scalar_event,
    string_tensor_proto,
    summary_event,
    tensor_proto,
    version_event,
)
from support.python39 import OLD_PROTOBUF
from support.read_events import assert_same_both_ways, decode
from support.wire_format import varint
from tbupload.events import skip_reasons
from tbupload.events.decode.event_layout import parse_layout
from tbupload.events.decode.layout_cache import find_layout
from tbupload.events.filters import SeriesFilter
from tbwire import tensorboard_pb2 as pb

INFINITE = float("inf")
NAN = float("nan")


def field(number, kind, content):
    """Return the bytes of a protobuf field."""
    key = bytes([number << 3 | kind])
    return key + (varint(len(content)) + content if kind == 2 else content)


tags = st.sampled_from(
    ["a", "b", "loss", "lost", "accuracy/top 1", "accuracy/top 5", "ä/漢", "x" * 70]
)
steps = st.sampled_from([0, 1, 127, 128, 300, 16_383, 16_384, 2**31, 2**63 - 1, -1, -5, -(2**63)])
wall_times = st.sampled_from([0.0, 1.5, 1_700_000_000.25, -3.0]) | st.sampled_from([NAN, INFINITE])
floats = st.sampled_from([0.0, -0.0, 1 / 3, NAN, INFINITE, -INFINITE, 1e-45, 3.4e38])

metadatas = st.sampled_from(
    [
        None,
        None,
        pb.SummaryMetadata(plugin_data={"plugin_name": "scalars"}).SerializeToString(),
        pb.SummaryMetadata(
            plugin_data={"plugin_name": "scalars"}, display_name="x"
        ).SerializeToString(),
        pb.SummaryMetadata(plugin_data={"plugin_name": "other"}).SerializeToString(),
        pb.SummaryMetadata(plugin_data={"plugin_name": "other"}, data_class=1).SerializeToString(),
        pb.SummaryMetadata(
            plugin_data={"plugin_name": "hparams"}, data_class=1
        ).SerializeToString(),
        pb.SummaryMetadata(plugin_data={"plugin_name": "a\0"}).SerializeToString(),
        pb.SummaryMetadata().SerializeToString(),
        b"\x1a\x01\xff",  # a display name that is no UTF-8
        b"\xff",
    ]
)


@st.composite
def tensors(draw):
    """Generate tensors of about one element, as writers encode them, with fields in any order."""
    dtype, pack, number = draw(
        st.sampled_from(
            [
                (1, "<f", 5),
                (2, "<d", 6),
                (3, "<i", 7),
                (9, "<q", 10),
                (4, "<B", 7),
                (19, "<e", 13),
                (10, "<?", 11),
            ]
        )
    )
    content = struct.pack(pack, draw(st.sampled_from([0, 1, 2.5 if pack[1] in "fde" else 2])))
    value = draw(
        st.sampled_from(
            [
                field(4, 2, content),
                field(number, 2, content) if dtype in (1, 2) else field(number, 0, varint(1)),
                field(
                    number,
                    {4: 5, 8: 1}.get(len(content), 0),
                    content if dtype in (1, 2, 3, 9) else b"\1",
                ),
                field(4, 2, content + content),
                field(4, 2, content[:-1]),
                b"",
            ]
        )
    )
    shape = draw(
        st.sampled_from(
            [
                field(2, 2, b""),
                b"",
                field(2, 2, b"\x12\x02\x08\x01"),
                field(2, 2, b"\x12\x02\x08\x02"),
            ]
        )
    )
    parts = [
        field(1, 0, varint(dtype)),
        shape,
        value,
        draw(st.sampled_from([b"", b"", field(3, 0, b"\1")])),
    ]
    return b"".join(draw(st.permutations(parts)))


@st.composite
def values(draw):
    name = draw(st.sampled_from([b"\xff", b"a\0b"]) | tags.map(str.encode))
    simple = st.builds(lambda number: field(2, 5, struct.pack("<f", number)), floats)
    parts = [field(1, 2, name), draw(simple | tensors().map(lambda tensor: field(8, 2, tensor)))]
    metadata = draw(metadatas)
    if metadata is not None:
        parts.append(field(9, 2, metadata))
    return field(1, 2, b"".join(draw(st.permutations(parts))))


@st.composite
def events(draw):
    """Generate an event with fields in any order, some absent; the varint of its step may be longer
    than necessary.
    """
    summary = b"".join(draw(st.lists(values(), min_size=1, max_size=3)))
    parts = [field(5, 2, summary)]
    if draw(st.booleans()):
        parts.append(field(1, 1, struct.pack("<d", draw(wall_times))))
    if draw(st.booleans()):
        step = draw(steps)
        parts.append(
            field(2, 0, varint(step, padding=draw(st.integers(0, 1)) if 0 <= step < 2**31 else 0))
        )
    return b"".join(draw(st.permutations(parts)))


oddities = st.sampled_from(
    [
        b"",
        b"\xff\xff",
        field(5, 2, b""),
        version_event().SerializeToString(),
        hparams_event("_hparams_/x", b"one").SerializeToString(),
        hparams_event("_hparams_/x", b"two").SerializeToString(),
        histogram_event("loss", 3, [[0, 1, 2]]).SerializeToString(),
        plugin_event("text", "a", 1, string_tensor_proto([b"t"], ())).SerializeToString(),
    ]
)


@st.composite
def files(draw):
    """Generate events repeated often enough for bulk decoding, and shuffled."""
    kinds = draw(
        st.lists(st.tuples(events() | oddities, st.integers(1, 12)), min_size=1, max_size=8)
    )
    payloads = [payload for payload, count in kinds for _ in range(count)]
    return draw(st.permutations(payloads)) if draw(st.booleans()) else payloads


@settings(max_examples=60)
@given(files(), st.data())
def test_both_ways_give_same(payloads, data):
    spoilt = data.draw(st.sets(st.integers(0, len(payloads) - 1), max_size=3))
    series_filter = data.draw(
        st.sampled_from([SeriesFilter(), SeriesFilter(plugins=frozenset({"scalars"}))])
        | st.just(SeriesFilter())
    )
    assert_same_both_ways(payloads, spoilt=spoilt, series_filter=series_filter)


@settings(max_examples=20)
@given(
    st.lists(st.tuples(tags, steps, wall_times, floats), min_size=8, max_size=60),
    st.sampled_from(["simple", "tensor"]),
)
def test_what_writers_produce_is_decoded_without_protobuf(scalars, style):
    payloads = [
        scalar_event(tag, step, value, wall_time, style).SerializeToString()
        for tag, step, value, wall_time in scalars
    ]
    assert_same_both_ways(payloads)
    assert all(parse_layout(payload) is not None for payload in payloads)


@settings(max_examples=60)
@given(events(), st.data())
def test_bytes_that_were_changed_are_refused_or_read_alike(payload, data):
    changed = []
    for _ in range(data.draw(st.integers(1, 4))):
        at, byte = data.draw(st.integers(0, len(payload) - 1)), data.draw(st.integers(0, 255))
        changed += [payload[:at] + bytes([byte]) + payload[at + 1 :]] * 8
    assert_same_both_ways([*changed, *[payload] * 8])


@pytest.mark.parametrize("size_bytes", [1, 5, 6, 10])
def test_varint_too_long_is_refused_in_bulk_decoding(size_bytes):
    value = field(1, 2, b"t") + field(2, 5, struct.pack("<f", 1))
    summary = b"\x0a" + varint(len(value), padding=size_bytes - 1) + value
    series, skipped = assert_same_both_ways([field(5, 2, summary)] * 20)
    if OLD_PROTOBUF and size_bytes > 5 and series:
        return  # protobuf itself accepts it
    assert (len(series), skipped) == (
        (1, {}) if size_bytes <= 5 else (0, {skip_reasons.NOT_AN_EVENT: 20})
    )


@settings(max_examples=120)
@given(events(), st.data())
def test_layout_met_before_is_what_parsing_says(payload, data):
    find_layout(payload)
    for _ in range(20):
        at, bit = data.draw(st.integers(0, len(payload) - 1)), data.draw(st.integers(0, 7))
        changed = payload[:at] + bytes([payload[at] ^ 1 << bit]) + payload[at + 1 :]
        known = find_layout(changed)
        assert (known and known.layout) == parse_layout(changed)


def test_several_values_of_event_keep_their_order():
    payloads = [
        summary_event(
            step,
            1.0,
            *(
                pb.Summary.Value(tag=tag, simple_value=step + place)
                for place, tag in enumerate(["a", "b", "a"])
            ),
        )
        for step in range(20)
    ]
    series, _ = assert_same_both_ways(payloads)
    values = [struct.unpack("<f", value[1])[0] for _, _, value in series["a"].points]
    assert values == [number for step in range(20) for number in (step, step + 2)]


def test_tensor_of_float64_is_not_rounded():
    payloads = [plugin_event("scalars", "t", step, tensor_proto(1 / 3)) for step in range(20)]
    series, _ = assert_same_both_ways(payloads)
    assert {value for *_, value in series["t"].points} == {("float64", struct.pack("<d", 1 / 3))}


def test_float32_and_float64_of_tag_become_float64():
    payloads = [
        plugin_event("scalars", "t", step, tensor_proto(1 / 3 if step % 2 else 0.5))
        for step in range(20)
    ] + [scalar_event("t", step, 1 / 3) for step in range(20, 40)]
    series, _ = assert_same_both_ways(payloads)
    assert [step for step, *_ in series["t"].points] == list(range(40))
    assert {value[0] for *_, value in series["t"].points} == {"float64"}


def test_only_first_value_of_tag_needs_metadata():
    payloads = [
        scalar_event("t", step, step, style="tensor", metadata=step == 0) for step in range(100)
    ]
    series, skipped = assert_same_both_ways(payloads)
    assert (len(series["t"].points), skipped) == (100, {})


def test_tag_that_begins_without_plugin_stays_without_one():
    payloads = [
        scalar_event("t", step, step, style="tensor", metadata=step == 50) for step in range(100)
    ]
    series, skipped = assert_same_both_ways(payloads)
    assert (series["t"].plugin, series["t"].metadata.data_class) == ("", pb.DATA_CLASS_TENSOR)
    assert [step for step, *_ in series["t"].points] == [step for step in range(100) if step != 50]
    assert skipped == {skip_reasons.OTHER_PLUGIN: 1}


def test_values_without_plugin_are_dropped_by_plugin_filter():
    series_filter = SeriesFilter(plugins=frozenset({"scalars"}))
    payloads = [scalar_event("t", step, step, style="tensor", metadata=False) for step in range(20)]
    assert assert_same_both_ways(payloads, series_filter=series_filter) == ({}, {})


def test_first_value_of_tag_sets_plugin_at_any_position():
    text = plugin_event("text", "t", 0, string_tensor_proto([b"x"], ()))
    scalars = [scalar_event("t", step, step) for step in range(20)]
    series, skipped = assert_same_both_ways([*scalars[:10], text, *scalars[10:]])
    assert (series["t"].plugin, len(series["t"].points)) == ("scalars", 20)
    assert skipped == {skip_reasons.OTHER_PLUGIN: 1}
    series, skipped = assert_same_both_ways([text, *scalars])
    assert (series["t"].plugin, len(series["t"].points)) == ("text", 1)
    assert skipped == {skip_reasons.OTHER_PLUGIN: 20}


def test_damaged_records_are_counted_and_rest_is_read():
    series, skipped = assert_same_both_ways(
        [scalar_event("t", step, step) for step in range(100)], spoilt=[0, 7, 99]
    )
    assert [step for step, *_ in series["t"].points] == [
        step for step in range(100) if step not in (0, 7, 99)
    ]
    assert skipped == {skip_reasons.RECORD_DAMAGED: 3}


def test_wall_times_that_are_no_numbers_are_counted():
    walls = [NAN, 1.0, INFINITE, 2.0, -INFINITE] * 4
    series, skipped = assert_same_both_ways([scalar_event("t", 1, 0, wall) for wall in walls])
    assert (len(series["t"].points), skipped) == (8, {skip_reasons.WALL_TIME_NOT_FINITE: 12})


@pytest.mark.parametrize("count", [5, 2000])
def test_many_tags_of_one_length_are_told_apart(count):
    payloads = [
        scalar_event(f"layer_{tag:04}/weight_{tag:05}", step, tag)
        for step in range(10)
        for tag in range(count)
    ]
    series, skipped = decode(payloads)
    assert len(series) == count
    assert not skipped
    for tag in range(count):
        points = series[f"layer_{tag:04}/weight_{tag:05}"].points
        assert [step for step, *_ in points] == list(range(10))
        assert {value[1] for *_, value in points} == {struct.pack("<f", tag)}


def test_group_of_many_shapes_is_left_to_protobuf():
    shapes = [field(1, 1, bytes(8)) + field(15, 2, bytes([n]) * 20) for n in range(100)]
    scalars = [scalar_event("t", step, step).SerializeToString() for step in range(100)]
    assert_same_both_ways([*shapes, *scalars])
