"""Repeating steps decoded as rows: the same points as by protobuf, and no repeating record left
out.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.damaged_files import Bench
from support.event_files import (
    encode_records,
    histogram_event,
    image_event,
    scalar_event,
    summary_event,
    version_event,
)
from support.read_events import assert_same_both_ways, decode
from tbupload.events import skip_reasons
from tbupload.events.decode import decoder, record_periods, step_rows
from tbupload.events.decode.record_periods import find_periodic_records
from tbupload.events.filters import SeriesFilter
from tbwire import tensorboard_pb2 as pb

NAN = float("nan")

names = st.sampled_from(["loss", "lost", "last", "accuracy/top_1", "accuracy/top_5", "lr", "ä/漢"])
styles = st.sampled_from(["simple", "simple", "tensor"])
interruptions = st.sampled_from(
    [
        [],
        [scalar_event("eval/loss", 3, 0.5)],
        [scalar_event("loss", 3, 0.5), scalar_event("eval/accuracy", 3, 0.5)],
        [histogram_event("loss", 3, [[0, 1, 2]])],
        [version_event()],
        [image_event("picture", 3)],
    ]
)


@pytest.fixture(scope="module", autouse=True)
def _few_steps_are_enough():
    with pytest.MonkeyPatch.context() as patch:
        for module in (record_periods, step_rows):
            patch.setattr(module, "STEPS_MIN", 64)
        yield


@pytest.fixture
def left(monkeypatch):
    """Return by call the number of records that were left to be decoded one by one."""
    rows = []
    group_by_length = decoder.group_by_length
    monkeypatch.setattr(
        decoder,
        "group_by_length",
        lambda frames, rest: rows.append(len(rest)) or group_by_length(frames, rest),
    )
    return rows


@pytest.fixture(scope="module")
def steps_of_a_file():
    tags = [("loss", "simple"), ("a", "simple"), ("b", "simple"), ("accuracy", "tensor")]
    return encode_records([version_event(), *job(tags, range(200, 280))])


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("damaged"))


def step_events(step, tags, value=0.5, wall_time=1.0):
    return [
        scalar_event(tag, step, value + place, wall_time, style)
        for place, (tag, style) in enumerate(tags)
    ]


def job(tags, steps):
    """Return the events of a job that writes these tags at each of these steps."""
    return [
        event
        for step in steps
        for event in step_events(step, tags, value=step, wall_time=1_700_000_000 + step / 7)
    ]


@st.composite
def jobs(draw):
    """Generate files of one to three periodic stretches, with other events between them; steps may
    pass 128 and 16,384.
    """
    events = draw(interruptions)
    for _ in range(draw(st.integers(1, 3))):
        tags = draw(st.lists(st.tuples(names, styles), min_size=1, max_size=6))
        first = draw(st.sampled_from([0, 1, 100, 16_300, 2**21 - 20, 2**31, -50]))
        walls = draw(
            st.lists(
                st.sampled_from([1.5, 1.5, 1.5, 1_700_000_000.25, NAN]), min_size=1, max_size=3
            )
        )
        for number in range(draw(st.integers(60, 140))):
            events = events + step_events(
                first + number, tags, number / 3, walls[number % len(walls)]
            )
        events = events + draw(interruptions)
    return events


@settings(max_examples=30)
@given(jobs(), st.data())
def test_both_ways_give_same(events, data):
    spoilt = data.draw(st.sets(st.integers(0, len(events) - 1), max_size=3))
    series_filter = data.draw(
        st.sampled_from(
            [SeriesFilter(), SeriesFilter(), SeriesFilter(plugins=frozenset({"images"}))]
        )
    )
    assert_same_both_ways(events, spoilt=spoilt, series_filter=series_filter)


@pytest.mark.parametrize(
    "tags",
    [
        [("loss", "simple"), ("accuracy", "simple")],
        [("loss", "simple"), ("accuracy", "tensor"), ("lr", "tensor")],
        [
            ("a", "simple"),
            ("b", "simple"),
            ("c", "simple"),
        ],  # of one size: only their names tell them apart
        [("a", "simple"), ("bb", "simple"), ("c", "simple"), ("dd", "simple")],
    ],
)
def test_nothing_that_repeats_is_read_record_by_record(tags, left):
    decode(job(tags, range(200, 500)))
    assert left == [0]


def test_steps_that_are_interrupted_are_read_as_one_matrix(left, monkeypatch):
    tags, calls = [("loss", "simple"), ("accuracy", "simple")], []
    monkeypatch.setattr(
        decoder, "decode_steps", lambda *args: calls.append(args) or step_rows.decode_steps(*args)
    )
    events = [
        version_event(),
        *job(tags, range(200, 400)),
        scalar_event("eval/loss", 399, 1),
        *job(tags, range(400, 600)),
    ]
    series, _ = assert_same_both_ways(events)
    assert (len(calls), left[0], len(series["loss"].points)) == (1, 2, 400)


def test_stretch_that_is_shorter_than_turn_of_names_is_left(left):
    events = job([(name, "simple") for name in "abcdefghijkl"], range(200, 300))
    series, _ = assert_same_both_ways([*events[:9], scalar_event("evaluation", 1, 1), *events[9:]])
    assert (left[0], {len(series[name].points) for name in "abcdefghijkl"}) == (9 + 1 + 3, {100})


def test_records_that_repeat_in_two_ways_are_read_once(left):
    alike, unlike = [("a", "simple"), ("b", "simple")], [("loss", "simple"), ("accuracy", "simple")]
    series, _ = assert_same_both_ways([*job(alike, range(200, 400)), *job(unlike, range(200, 400))])
    assert (left[0], {len(read.points) for read in series.values()}) == (0, {200})


def test_renamed_tag_causes_no_second_read_of_neighbours():
    before, after = (
        [(tag, "simple") for tag in (name, "a", "bb")] for name in ("train/loss", "finetune/loss")
    )
    series, _ = assert_same_both_ways([*job(before, range(200, 300)), *job(after, range(300, 400))])
    assert {tag: len(read.points) for tag, read in series.items()} == {
        "train/loss": 100,
        "a": 200,
        "bb": 200,
        "finetune/loss": 100,
    }


def test_damaged_steps_are_read_record_by_record(left):
    tags = [("loss", "simple"), ("accuracy", "simple")]
    series, skipped = assert_same_both_ways(job(tags, range(200, 400)), spoilt=[100, 301])
    assert (left[0], skipped) == (4, {skip_reasons.RECORD_DAMAGED: 2})
    assert {len(read.points) for read in series.values()} == {199}


@settings(max_examples=20)
@given(data=st.data())
def test_cut_or_damaged_steps_give_what_plain_reading_gives(data, damaged, steps_of_a_file):
    offset, mask = (
        data.draw(st.integers(0, len(steps_of_a_file) - 1)),
        data.draw(st.integers(1, 255)),
    )
    damaged.check_flip(steps_of_a_file, offset, mask)
    damaged.check_resealed(steps_of_a_file, offset, mask)
    damaged.check_cut(steps_of_a_file, offset)


def test_other_records_among_those_that_repeat_are_left(left):
    def events(step):
        values = [pb.Summary.Value(tag=tag, simple_value=step) for tag in ("loss", "accuracy")]
        return [summary_event(step, 1.0, *values), histogram_event("weights", step, [[0, 1, 2]])]

    series, _ = assert_same_both_ways([event for step in range(200, 300) for event in events(step)])
    assert (left[0], {tag: len(read.points) for tag, read in series.items()}) == (
        100,
        {"loss": 100, "weights": 100, "accuracy": 100},
    )


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=5), st.integers(1, 90)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_steps_partition_records_by_kind(patterns, data):
    sizes = np.array([size for pattern, count in patterns for size in pattern * count], np.uint32)
    stops = np.array(
        [*sorted(data.draw(st.sets(st.integers(1, len(sizes)), max_size=3))), len(sizes)]
    )
    seen: list[int] = []
    for period in find_periodic_records(sizes, stops):
        records = period.first_records()[:, None] + np.arange(period.period)
        assert (sizes[records] == sizes[records[0]]).all()
        files = np.searchsorted(stops, records, "right")
        assert (files == files[:, :1]).all()
        seen += records.ravel().tolist()
    assert len(seen) == len(set(seen))


def test_no_step_lies_in_two_files():
    sizes = np.array([5, 6, 7] * 300, np.uint32)
    (period,) = find_periodic_records(sizes, np.array([100, 200, 900]))
    assert (period.begins.tolist(), period.counts.tolist()) == ([0, 102, 201], [33, 32, 233])
    firsts = period.first_records().tolist()
    assert not any(
        {first < stop, first + 2 < stop} == {True, False} for first in firsts for stop in (100, 200)
    )
