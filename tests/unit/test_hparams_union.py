"""Hyperparameters that are logged more than once: keys are united, the newest value of each wins."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.plugins.hparams import plugin_data_pb2

from support.batches import metadata
from support.hparams_records import content_of, hparams_of, record, start_of, wrap
from tbwire import hparams_union
from tbwire.hparams_union import MetadataUnion, UnionOverLimit, as_set
from tbwire.hparams_union_pb2 import PluginData
from tbwire.tensorboard_pb2 import SummaryMetadata

BYTES_MAX = 4 << 20


def unite(*records):
    """The union of records (metadata, wall time), each added by itself."""
    (first, wall_time), *others = records
    union = MetadataUnion(first, wall_time)
    for sent, at in others:
        union.add(sent, at, BYTES_MAX)
    return union.serialize()


def keys_in_order(united):
    data = PluginData.FromString(content_of(united))
    return [entry.key for entry in data.session_start_info.hparams]


def test_union_has_all_keys_with_newest_values():
    first, second = record({"rate": 0.1, "kind": "adam"}), record({"extra": 1, "rate": 0.2})
    united = unite((first, 1.0), (second, 2.0))
    assert hparams_of(united) == {"rate": 0.2, "kind": "adam", "extra": 1}
    assert keys_in_order(united) == ["extra", "kind", "rate"]
    assert unite((second, 2.0), (first, 1.0)) == united


def test_of_equal_wall_times_later_value_wins():
    """The limit of order independence: from one file they come in its order, else by chance."""
    first, second = (record({"a": 1, "b": 1}), 5.0), (record({"a": 2}), 5.0)
    assert hparams_of(unite(first, second)) == {"a": 2, "b": 1}
    assert hparams_of(unite(second, first)) == {"a": 1, "b": 1}


def test_fields_are_newest_that_are_not_empty():
    first = record(group_name="a", model_uri="m", start_time_secs=7.0)
    second, third = record(group_name="b", start_time_secs=8.0), record({"x": 1}, monitor_url="u")
    for order in permutations([(first, 1.0), (second, 2.0), (third, 3.0)]):
        start = start_of(unite(*order))
        assert (start.group_name, start.model_uri, start.monitor_url) == ("b", "m", "u")
        assert start.start_time_secs == 8.0


def test_equal_records_stay_as_they_were_written():
    written = record({"b": 1, "a": 2, "c": 3}, group_name="g")
    union = MetadataUnion(written, 1.0)
    union.add(written, 5.0, BYTES_MAX)
    union.add(written, 3.0, BYTES_MAX)
    assert (union.serialize(), union.wall_time) == (written, 5.0)
    union.add(record({"a": 0}), 4.0, BYTES_MAX)
    assert hparams_of(union.serialize())["a"] == 2


KEYS = st.dictionaries(st.sampled_from("abcdeé"), st.integers(-9, 9), max_size=4)
RECORDS = st.lists(
    st.builds(
        lambda hparams, group, started: record(hparams, group_name=group, start_time_secs=started),
        KEYS,
        st.sampled_from(["", "g", "h"]),
        st.sampled_from([0.0, 1.5]),
    ),
    min_size=1,
    max_size=6,
)


@given(RECORDS, st.data())
def test_union_is_independent_of_order_splits_and_repeats(records, data):
    timed = [(sent, float(index)) for index, sent in enumerate(records)]
    expected = unite(*timed)
    arrived = data.draw(st.permutations(timed + timed[: data.draw(st.integers(0, len(timed)))]))
    assert unite(*arrived) == expected

    # As clients send it: some records united before, with the wall time of their segment.
    cut = data.draw(st.integers(1, len(arrived)))
    batches = [arrived[:cut], arrived[cut:]] if arrived[cut:] else [arrived]
    sent = [(unite(*batch), max(at for _, at in batch)) for batch in batches]
    assert unite(*data.draw(st.permutations(sent))) == expected


@given(RECORDS)
def test_union_has_value_of_last_record_with_key(records):
    united = unite(*((sent, float(index)) for index, sent in enumerate(records)))
    expected = {}
    for sent in records:
        expected |= hparams_of(sent)
    assert hparams_of(united) == expected


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 3)), min_size=2, max_size=5))
def test_union_of_any_bytes_never_fails(contents):
    good = record({"a": 1})
    sent = [(metadata("hparams", 2, content=content), float(at)) for content, at in contents]
    union = MetadataUnion(good, 1.0)
    for each in sent:
        union.add(*each, BYTES_MAX)
    SummaryMetadata.FromString(union.serialize())


@pytest.mark.parametrize(
    "other",
    [
        wrap(experiment={"name": "e"}),
        wrap(session_end_info={"status": 2}),
        wrap(),
        metadata("hparams", 2, content=b"\xff"),
        metadata("hparams", 2, content=b"\x1a\x07\x0a\x05\x0a\x00\x12\x01\x0f"),
    ],
    ids=["experiment", "end", "empty", "malformed", "malformed value"],
)
def test_newest_replaces_what_is_no_session_start(other):
    start, experiment = record({"a": 1}), wrap(experiment={"name": "older"})
    for first in (start, experiment):
        assert unite((first, 1.0), (other, 1.0)) == other
        assert unite((first, 2.0), (other, 1.0)) == first
        assert unite((other, 1.0), (first, 2.0)) == first
    assert hparams_of(unite((start, 1.0), (other, 2.0), (record({"b": 1}), 3.0))) == {"b": 1}


def test_later_of_duplicate_keys_in_record_counts():
    content = b"".join(content_of(record({"a": value})) for value in (1, 2))
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert start.hparams["a"].number_value == 2
    twice = metadata("hparams", 2, content=content)
    assert hparams_of(unite((twice, 1.0), (record({"b": 0}), 2.0))) == {"a": 2, "b": 0}


def test_unknown_fields_of_newest_record_are_kept():
    def with_unknown(text):
        message = SummaryMetadata.FromString(record({"a": 1}))
        data = PluginData.FromString(message.plugin_data.content)
        unknown = b"\xfa\x3f" + bytes([len(text)]) + text
        data.session_start_info.MergeFromString(unknown)
        message.plugin_data.content = data.SerializeToString()
        return message.SerializeToString() + unknown

    united = unite((with_unknown(b"older"), 1.0), (with_unknown(b"newer"), 2.0))
    assert united.count(b"newer") == 2
    assert b"older" not in united


def test_description_is_that_of_newest_record():
    def described(text):
        message = SummaryMetadata.FromString(record({text: 1}))
        message.summary_description = text
        return message.SerializeToString()

    for order in permutations([(described("old"), 1.0), (described("new"), 2.0)]):
        assert SummaryMetadata.FromString(unite(*order)).summary_description == "new"


def test_union_over_limit_is_refused_and_unchanged():
    union = MetadataUnion(record({"a": "x" * 400}), 1.0)
    union.add(record({"b": "y" * 400}), 2.0, 1_200)
    before = union.serialize()
    with pytest.raises(UnionOverLimit, match="over the limit of 1,200 bytes"):
        union.add(record({"c": "z" * 400}), 3.0, 1_200)
    assert (union.serialize(), union.wall_time) == (before, 2.0)
    union.add(record({"b": "small"}), 4.0, 1_200)
    union.add(record({"c": "z" * 400}), 3.0, 1_200)
    assert hparams_of(union.serialize())["b"] == "small"


@given(
    st.lists(
        st.tuples(st.text(max_size=3), st.text(max_size=90), st.text(max_size=60)), max_size=20
    )
)
def test_union_is_never_larger_than_limit(values):
    union = MetadataUnion(record(), 0.0)
    for at, (key, value, uri) in enumerate(values):
        with suppress(UnionOverLimit):
            union.add(record({key: value}, model_uri=uri, start_time_secs=1.0), float(at), 600)
        assert len(union.serialize()) <= 600


def test_union_has_limit_on_number_of_keys(monkeypatch):
    monkeypatch.setattr(hparams_union, "HPARAMS_MAX", 3)
    union = MetadataUnion(record({"a": 1, "b": 1}), 1.0)
    union.add(record({"b": 2, "c": 2}), 2.0, BYTES_MAX)
    for too_many in (record({"d": 3}), record(dict.fromkeys("vwxyz", 1))):
        with pytest.raises(UnionOverLimit, match="over the limit of"):
            union.add(too_many, 3.0, BYTES_MAX)
    union.add(record({"a": 4}), 4.0, BYTES_MAX)
    assert hparams_of(union.serialize()) == {"a": 4, "b": 2, "c": 2}


def test_record_with_too_many_entries_is_not_united(monkeypatch):
    """Not even of one key: its entries are counted before they are looked at."""
    monkeypatch.setattr(hparams_union, "HPARAMS_MAX", 3)
    repeated = metadata("hparams", 2, content=content_of(record({"a": 1})) * 5)
    for first, second in ((repeated, record({"a": 2})), (record({"a": 2}), repeated)):
        union = MetadataUnion(first, 1.0)
        for _ in range(2):
            with pytest.raises(UnionOverLimit, match="over the limit of"):
                union.add(second, 2.0, BYTES_MAX)
        assert union.serialize() == first


def change_wall_times(united, change):
    message = SummaryMetadata.FromString(united)
    data = PluginData.FromString(message.plugin_data.content)
    change(data.session_start_info)
    message.plugin_data.content = data.SerializeToString()
    return message.SerializeToString()


def test_wall_times_that_do_not_fit_keys_are_ignored():
    """As when somebody has written the map again, in another order."""
    united = unite((record({"a": 1}), 1.0), (record({"b": 1}), 2.0))

    def reverse(start):
        entries = list(start.hparams)[::-1]
        del start.hparams[:]
        start.hparams.extend(entries)

    for change in (reverse, lambda start: start.wall_times.hparams.append(9.0)):
        changed = change_wall_times(united, change)
        assert hparams_of(unite((changed, 5.0), (record({"a": 4, "b": 4}), 4.0))) == {
            "a": 1,
            "b": 1,
        }


@pytest.mark.parametrize("wall_time", [math.nan, math.inf])
def test_wall_times_that_are_not_finite_are_malformed(wall_time):
    united = unite((record({"a": 1}), 1.0), (record({"b": 1}), 2.0))
    for change in (
        lambda start: start.wall_times.hparams.__setitem__(0, wall_time),
        lambda start: setattr(start.wall_times, "record", wall_time),
    ):
        changed = change_wall_times(united, change)
        assert hparams_of(unite((changed, 5.0), (record({"c": 1}), 6.0))) == {"c": 1}


def test_values_that_are_set_are_no_record():
    """Also if they are added again, as by a retry, whatever its wall time is."""
    union = MetadataUnion(as_set(record({"a": 1}), 9.0), 9.0)
    union.add(union.serialize(), 10.0, BYTES_MAX)
    assert union.wall_time == 0
    union.add(record({"a": 2, "b": 2}), 5.0, BYTES_MAX)
    assert (union.wall_time, hparams_of(union.serialize())) == (5.0, {"a": 1, "b": 2})


def test_record_that_looks_like_union_has_greatest_wall_time():
    """A number may have the bytes that precede the wall times of a union."""
    (number,) = struct.unpack("<d", b"\x82\xe8\x07\0\0\0\0\x40")
    union = MetadataUnion(logged := record({"a": number}), 1.0)
    union.add(logged, 5.0, BYTES_MAX)
    assert (union.wall_time, union.serialize()) == (5.0, logged)


def is_part(mine, stored):
    """Whether an upload of the first record would change nothing of the others."""
    united = unite(*stored)
    wall_time = max(at for _, at in stored)
    return MetadataUnion(*mine).is_part_of(content_of(united), wall_time)


END, OTHER_END = (
    wrap(session_end_info=plugin_data_pb2.SessionEndInfo(status=status)) for status in (1, 2)
)


@pytest.mark.parametrize(
    ("mine", "stored", "expected"),
    [
        pytest.param((record({"a": 1}), 1), [(record({"a": 1}), 9)], True, id="same"),
        pytest.param(
            (record({"a": 1}), 1), [(record({"a": 1}), 1), (record({"b": 2}), 9)], True, id="more"
        ),
        pytest.param(
            (record({"a": 1}), 1), [(record({"a": 2}), 9)], False, id="not-sent-but-other-is"
        ),
        pytest.param(
            (record({"a": 1}), 1), [(record({"a": 1}), 1), (record({"a": 2}), 9)], True, id="later"
        ),
        pytest.param(
            (record({"a": 3}), 10),
            [(record({"a": 1}), 1), (record({"a": 2}), 9)],
            False,
            id="earlier",
        ),
        pytest.param(
            (record({"a": 1, "c": 1}), 1),
            [(record({"a": 1}), 1), (record({"a": 2}), 9)],
            False,
            id="key-missing",
        ),
        pytest.param((END, 1), [(OTHER_END, 9)], True, id="later-end"),
        pytest.param((END, 9), [(OTHER_END, 1)], False, id="earlier-end"),
        pytest.param((END, 1), [(OTHER_END, 1)], False, id="end-of-same-time"),
        pytest.param((END, 9), [(END, 1)], True, id="same-end"),
        pytest.param((wrap(), 1), [(record({"a": 1}), 9)], True, id="later-than-rubbish"),
    ],
)
def test_record_is_part_of_what_it_would_not_change(mine, stored, expected):
    assert is_part(mine, stored) is expected
