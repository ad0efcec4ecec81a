"""TFRecord framing and its checksums in bulk, against a plain loop and google_crc32c."""

from __future__ import annotations

import struct

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.event_files import encode_record, encode_records
from support.python39 import zip_strict
from tbupload.events import framing, linear_checksum, tf_record
from tbupload.events.decode import record_rows, record_walk
from tbupload.events.decode.record_walk import find_record_starts


def plain_walk(buffer, start):
    starts, position = [], start
    while position + 12 <= len(buffer):
        starts.append(position)
        position += struct.unpack_from("<Q", buffer, position)[0] + 16
    return starts, position


def payloads_of(buffer, frames):
    pairs = zip_strict(frames.starts.tolist(), frames.lengths.tolist())
    return [buffer[start + 12 : start + 12 + length] for start, length in pairs]


repeating = st.tuples(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=140), max_size=4),
    st.integers(1, 600),
    st.binary(),
)
fillings = st.sampled_from(
    [
        bytes(1),
        b"\xff",
        encode_record(b""),
        encode_record(b"\0" * 9),
        encode_records([b"x" * 300, b""]),
    ]
)


@given(repeating, st.integers(0, 30), fillings, st.sets(st.integers(0, 2400), max_size=3))
def test_walk_finds_what_plain_loop_finds(lengths, start, filling, unsound):
    """Also when payloads contain records, lengths fail their checksums, and some records are long."""
    blocks, count, tail = lengths
    pieces = [bytes(start)]
    for block in blocks:
        for length in (block * (count // len(block) + 1))[:count]:
            header = (
                encode_record(bytes(length))[:12]
                if len(pieces) not in unsound
                else struct.pack("<QI", length, 0)
            )
            pieces.append(header + (filling * (length + 4))[: length + 4])
    pieces.insert(len(pieces) // 2, encode_record(bytes(70_000)))
    buffer = b"".join(pieces) + tail
    starts, end = find_record_starts(buffer, start)
    assert (starts.tolist(), end) == plain_walk(buffer, start)


def test_walk_of_short_records_is_no_loop(monkeypatch):
    buffer = encode_records([b"x" * (number % 37) for number in range(10_000)])
    step, looked = record_walk._walk_few, []
    monkeypatch.setattr(
        record_walk, "_walk_few", lambda *arguments: looked.append(arguments) or step(*arguments)
    )
    starts, _ = find_record_starts(buffer, 0)
    assert len(starts) == 10_000
    assert len(looked) == 1


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(0, 2000))
def test_buffer_cut_anywhere_gives_records_that_are_whole(payloads, cut):
    whole = encode_records(payloads)
    buffer = whole[: min(cut, len(whole))]
    frames = framing.find_records(buffer, 0)
    ends = np.cumsum([len(payload) + 16 for payload in payloads]).tolist()
    count = sum(end <= len(buffer) for end in ends)
    assert payloads_of(buffer, frames) == payloads[:count]
    assert not frames.is_corrupt
    assert frames.end == (ends[count - 1] if count else 0)
    has_header = len(buffer) - frames.end >= 12
    assert frames.next_bytes == (len(payloads[count]) + 16 if has_header else 0)


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=300), st.data())
def test_framing_stops_at_first_header_that_is_not_sound(payloads, data):
    buffer = bytearray(encode_records(payloads))
    starts, _ = plain_walk(bytes(buffer), 0)
    spoilt = data.draw(st.integers(0, len(payloads) - 1))
    buffer[starts[spoilt] + data.draw(st.integers(0, 11))] ^= data.draw(st.integers(1, 255))
    frames = framing.find_records(bytes(buffer), 0)
    assert frames.is_corrupt
    assert frames.end == starts[spoilt]
    assert payloads_of(buffer, frames) == payloads[:spoilt]


def test_length_of_two_to_64_is_corrupt_whatever_its_checksum():
    header = b"\xff" * 8
    sound = header + tf_record.footer(google_crc32c.value(header))
    frames = framing.find_records(encode_record(b"one") + sound, 0)
    assert (len(frames.starts), frames.end, frames.is_corrupt) == (1, 19, True)


@pytest.mark.parametrize("length", [0, 1, 3, 8, 60, 300, 4096, 5000])
@pytest.mark.parametrize("varying", [0, 1, 12, 70])
def test_checksums_of_many_rows_are_those_of_each(length, varying):
    generator = np.random.default_rng(length + varying)
    rows = np.tile(generator.integers(0, 256, length, np.uint8), (50, 1))
    columns = generator.choice(length, min(varying, length), replace=False)
    rows[:, columns] = generator.integers(0, 256, (50, len(columns)), np.uint8)
    expected = [google_crc32c.value(row.tobytes()) for row in rows]
    assert linear_checksum.checksums(rows, columns).tolist() == expected


@given(st.lists(st.binary(min_size=20, max_size=20), min_size=1, max_size=50), st.data())
def test_spoilt_payload_or_footer_is_noticed_and_no_other(payloads, data):
    buffer = bytearray(encode_records(payloads))
    spoilt = data.draw(st.sets(st.integers(0, len(payloads) - 1)))
    for record in spoilt:
        buffer[record * 36 + data.draw(st.integers(12, 35))] ^= data.draw(st.integers(1, 255))
    frames = framing.find_records(bytes(buffer), 0)
    (group,) = framing.group_by_length(frames, np.arange(len(frames.starts)))
    rows = record_rows.gather_payloads(
        bytes(buffer) + b"\xa5" * 8, frames.starts + 12, group.length, group.records
    )
    sound = record_rows.match_checksums(rows)
    assert np.flatnonzero(~sound).tolist() == sorted(spoilt)
    alone = [
        framing.payload(bytes(buffer), start, 20) is not None for start in frames.starts.tolist()
    ]
    assert alone == sound.tolist()


def test_records_are_grouped_by_length_in_file_order():
    payloads = [b"a", b"bb", b"c", b"", b"dd", bytes(70_000), bytes(65_535), b"e"]
    frames = framing.find_records(encode_records(payloads), 0)
    by_length = framing.group_by_length(frames, np.arange(len(frames.starts)))
    groups = [(group.length, group.records.tolist()) for group in by_length]
    assert groups == [(0, [3]), (1, [0, 2, 7]), (2, [1, 4]), (65_535, [5, 6])]
