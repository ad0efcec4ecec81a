"""Reading event files that grow, are truncated, damaged, replaced or no event files."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.event_files import (
    cut,
    encode_record,
    encode_records,
    flip_byte,
    histogram_event,
    hparams_event,
    image_event,
    record_offsets,
    scalar_event,
    spoil_length,
    spoil_length_checksum,
    text_event,
    version_event,
    write_records,
)
from support.read_events import LIMITS, join, open_file, points, read_all, read_chunks
from tbupload.errors import CorruptRecord, FileReplaced, NotAnEventFile
from tbupload.events import skip_reasons
from tbupload.events.event_file import EventFileReader
from tbwire.checksums import preceding_crc

SMALL = replace(LIMITS, chunk_bytes=300)
EVENTS = [
    version_event(),
    *(scalar_event("loss", step, step) for step in range(30)),
    text_event("notes", 1, "hello"),
    *(scalar_event("tensor", step, step, style="tensor", metadata=step == 0) for step in range(30)),
    image_event("picture", 1),
    hparams_event("_hparams_/x", b"content"),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "events.out.tfevents.1.host.0"
    write_records(path, EVENTS)
    return path


def raise_(error: Exception) -> None:
    raise error


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def test_file_is_read_in_chunks_that_join_without_gap(path):
    content = path.read_bytes()
    file = open_file(path, limits=SMALL)
    chunks = read_chunks(file)
    assert len(chunks) > 5
    assert [chunk.start for chunk in chunks] == [0, *(chunk.end for chunk in chunks[:-1])]
    assert chunks[-1].end == file.offset == len(content)
    assert {chunk.end for chunk in chunks} <= set(record_offsets(path))
    for chunk in chunks:
        assert chunk.start_checksum == preceding_crc(content[: chunk.start])
        assert chunk.end_checksum == preceding_crc(content[: chunk.end])
    assert join(chunks) == read_all(path)


@pytest.mark.parametrize("chunk_bytes", [1, 11, 12, 13, 50, 1000])
def test_size_of_chunks_changes_nothing_but_chunks(path, chunk_bytes):
    assert read_all(path, limits=replace(LIMITS, chunk_bytes=chunk_bytes)) == read_all(path)


def test_chunk_of_one_byte_is_one_record(path):
    chunks = read_chunks(open_file(path, limits=replace(LIMITS, chunk_bytes=1)))
    assert [chunk.end for chunk in chunks] == record_offsets(path)[1:]


def test_nothing_new_is_no_chunk_and_what_is_appended_comes_next(path):
    file = open_file(path)
    read_chunks(file, final=False)
    assert file.read() is None
    append(path, encode_record(scalar_event("loss", 100, 1.0).SerializeToString()))
    series, _ = join(read_chunks(file, final=False))
    assert [step for step, *_ in series["loss"].points] == [100]


@settings(max_examples=60)
@given(st.data())
def test_file_cut_anywhere_and_grown_gives_same_records_in_end(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "events.out.tfevents.1"
    whole = encode_records(EVENTS)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    path.write_bytes(b"")
    file = open_file(path, limits=data.draw(st.sampled_from([LIMITS, SMALL])))
    chunks = []
    for end in [*cuts, len(whole)]:
        append(path, whole[path.stat().st_size : end])
        chunks += read_chunks(file, final=data.draw(st.booleans()))
    assert join(chunks) == read_all(path)
    assert file.offset == len(whole)


@pytest.mark.parametrize("record", range(len(EVENTS) + 1))
def test_reading_on_from_any_record_gives_what_comes_after_it(path, record):
    offset = record_offsets(path)[record]
    whole, _ = read_all(path)
    before = path.with_name("before")
    before.write_bytes(path.read_bytes()[:offset])
    first, _ = read_all(before)
    rest, skipped = join(read_chunks(open_file(path, start=offset, limits=SMALL)))
    assert not skipped
    for tag, series in whole.items():
        points = [point for part in (first, rest) if tag in part for point in part[tag].points]
        assert points == series.points
        assert all(part[tag].metadata == series.metadata for part in (first, rest) if tag in part)


@pytest.mark.parametrize("chunk_bytes", [1, LIMITS.chunk_bytes])
@pytest.mark.parametrize("long_bytes_min", [-1, LIMITS.streamed_record_bytes_min])
def test_part_not_read_decides_whose_tag_of_two_plugins_is(path, chunk_bytes, long_bytes_min):
    pairs = [
        (scalar_event("x", step, step), histogram_event("x", step, [[0, 1, 2]]))
        for step in range(12)
    ]
    path.write_bytes(
        encode_records([version_event(), *(event for pair in pairs for event in pair)])
    )
    limits = replace(LIMITS, chunk_bytes=chunk_bytes, streamed_record_bytes_min=long_bytes_min)
    whole, skipped = read_all(path)
    assert (whole["x"].plugin, sum(skipped.values())) == ("scalars", 12)
    for number, offset in enumerate(record_offsets(path)[2:-1]):
        chunks = read_chunks(open_file(path, start=offset, limits=limits))
        # What is taken for another plugin's at first is left out by the server.
        owned = [
            series for chunk in chunks for series in chunk.series if series.plugin == "scalars"
        ]
        kept = [point for series in owned for point in points(series.columns)]
        assert kept == whole["x"].points[1 + number // 2 :]


def test_metadata_of_unread_part_is_read_only_when_needed(path, monkeypatch):
    calls = []
    recall = EventFileReader._replay_prefix
    monkeypatch.setattr(
        EventFileReader, "_replay_prefix", lambda file: calls.append(file) or recall(file)
    )
    offsets = record_offsets(path)
    read_chunks(open_file(path, start=offsets[20], limits=replace(LIMITS, chunk_bytes=1)))
    assert not calls
    read_chunks(open_file(path, start=offsets[40], limits=replace(LIMITS, chunk_bytes=1)))
    assert len(calls) == 1


def test_value_waits_for_unreadable_plugin_metadata(path, monkeypatch):
    named, nameless = (
        scalar_event("t", step, 1, style="tensor", metadata=step == 0) for step in range(2)
    )
    path.write_bytes(encode_records([named, nameless]))
    failures = [OSError("stale handle"), FileReplaced(path)]
    recall = EventFileReader._replay_prefix
    monkeypatch.setattr(
        EventFileReader,
        "_replay_prefix",
        lambda file: recall(file) if not failures else raise_(failures.pop()),
    )
    file = open_file(path, start=record_offsets(path)[1])
    for _ in range(2):
        with pytest.raises((OSError, FileReplaced)):
            file.read()
    series, skipped = join(read_chunks(file))
    assert (series["t"].plugin, skipped) == ("scalars", {})


# The end of a file that is still being written


def test_empty_file_has_nothing_to_say_yet(tmp_path):
    path = tmp_path / "empty"
    path.touch()
    file = open_file(path)
    assert (file.read(), file.first_record_digest(), file.start_time, file.offset) == (
        None,
        None,
        None,
        0,
    )


def test_file_that_is_not_there_is_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_file(tmp_path / "none").read()


def test_damaged_last_record_may_still_be_being_written(path):
    whole = path.read_bytes()
    flip_byte(path, len(whole) - 1)
    file = open_file(path)
    read_chunks(file, final=False)
    assert file.offset == record_offsets(path)[-2]
    path.write_bytes(whole)
    series, skipped = join(read_chunks(file, final=False))
    assert (list(series), skipped) == (["_hparams_/x"], {})


def test_damaged_last_record_counts_when_final(path):
    flip_byte(path, path.stat().st_size - 1)
    _, skipped = read_all(path)
    assert skipped == {skip_reasons.RECORD_DAMAGED: 1}
    file = open_file(path)
    read_chunks(file, final=False)
    append(path, encode_record(scalar_event("loss", 100, 1.0).SerializeToString()))
    series, skipped = join(read_chunks(file, final=False))
    assert (list(series), skipped) == (["loss"], {skip_reasons.RECORD_DAMAGED: 1})


# Damage


@pytest.mark.parametrize("spoil", [spoil_length, spoil_length_checksum])
def test_damaged_length_ends_file_after_what_came_before_it(path, spoil):
    offset = record_offsets(path)[7]
    spoil(path, 7)
    file = open_file(path)
    chunk = file.read()
    assert chunk.end == offset
    assert len(chunk.series[0].columns.steps) == 6
    for _ in range(2):
        with pytest.raises(CorruptRecord) as error:
            file.read()
        assert error.value.offset == offset
    assert file.offset == offset


def test_header_in_making_is_no_damage(path):
    append(path, b"\xff" * 11)
    file = open_file(path)
    read_chunks(file)
    assert file.read(final=True) is None
    append(path, b"\xff")
    with pytest.raises(CorruptRecord):
        file.read()


@pytest.mark.parametrize("content", [b"#!/bin/sh\nexit 0\n", bytes(12), bytes(5000)])
def test_file_that_begins_with_no_record_is_no_event_file(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    file = open_file(path)
    assert file.first_record_digest() is None
    with pytest.raises(NotAnEventFile, match="is not an event file"):
        file.read()


# Long records


def test_record_longer_than_chunk_is_read_when_it_is_whole(path):
    whole = path.read_bytes()
    long = encode_record(text_event("long", 1, "x" * 5000).SerializeToString())
    path.write_bytes(whole + long[:-1])
    file = open_file(path, limits=SMALL)
    read_chunks(file)
    assert file.offset == len(whole)
    append(path, long[-1:] + encode_record(scalar_event("loss", 100, 1.0).SerializeToString()))
    series, skipped = join(read_chunks(file))
    assert (list(series), skipped) == (["long", "loss"], {})


def test_record_over_limit_is_passed_over_once_it_is_whole(path):
    limits = replace(SMALL, record_bytes_max=4000)
    whole = path.read_bytes()
    long = encode_record(text_event("long", 1, "x" * 5000).SerializeToString())
    path.write_bytes(whole + long[:-1])
    file = open_file(path, limits=limits)
    read_chunks(file)
    assert file.offset == len(whole)
    append(path, long[-1:] + encode_record(scalar_event("loss", 100, 1.0).SerializeToString()))
    chunks = read_chunks(file)
    series, skipped = join(chunks)
    assert (list(series), skipped) == (["loss"], {"record over the limit of 4,000 bytes": 1})
    assert chunks[0].end_checksum == preceding_crc(path.read_bytes()[: chunks[0].end])


# Which file it is


def test_first_record_tells_one_file_from_another(path):
    file = open_file(path)
    first = path.read_bytes()[: record_offsets(path)[1]]
    assert file.first_record_digest() == hashlib.sha256(first).digest()
    assert file.start_time == 1_700_000_000.0


@pytest.mark.parametrize("size", [1, 11, 12, 30, -1])
def test_first_record_that_is_not_whole_tells_nothing_yet(tmp_path, size):
    path = tmp_path / "file"
    write_records(path, [version_event()])
    cut(path, size)
    file = open_file(path)
    assert (file.first_record_digest(), file.start_time) == (None, None)
    write_records(path, [version_event()])
    assert file.first_record_digest() is not None


def test_long_first_record_has_digest(tmp_path):
    path = tmp_path / "file"
    write_records(path, [b"\x0a" * (3 << 20)])
    assert open_file(path).first_record_digest() == hashlib.sha256(path.read_bytes()).digest()


def test_first_event_without_wall_time_gives_no_start_time(tmp_path):
    for number, first in enumerate([version_event(0), version_event(float("nan")), b"\xff"]):
        path = tmp_path / str(number)
        write_records(path, [first, scalar_event("t", 0, 1.0)])
        file = open_file(path)
        assert file.first_record_digest() is not None
        assert file.start_time is None


def test_matches_says_whether_bytes_before_offset_are_these(path):
    content = path.read_bytes()
    file = open_file(path)
    for offset in (0, 10, 1024, 2000, len(content)):
        assert file.matches(offset, preceding_crc(content[:offset]))
    assert not file.matches(len(content) + 1, preceding_crc(content))
    assert not file.matches(2000, preceding_crc(content[:1999]))


def test_file_that_became_shorter_was_replaced(path):
    file = open_file(path)
    read_chunks(file)
    cut(path, -1)
    for _ in range(2):
        with pytest.raises(FileReplaced):
            file.read()


@pytest.mark.parametrize("in_place", [True, False])
def test_file_with_other_bytes_is_read_as_replaced(path, in_place):
    file = open_file(path)
    read_chunks(file)
    digest = file.first_record_digest()
    other = [
        version_event(1_800_000_000.0),
        *(scalar_event("other", step, step) for step in range(500)),
    ]
    target = path if in_place else path.with_name("new")
    write_records(target, other)
    target.replace(path)
    with pytest.raises(FileReplaced):
        file.read()
    file = open_file(path)
    assert file.offset == 0
    assert file.first_record_digest() != digest
    series, skipped = join(read_chunks(file))
    assert (list(series), len(series["other"].points), skipped) == (["other"], 500, {})


def test_file_replaced_is_known_by_first_record(
    tmp_path,
):
    path, filler = tmp_path / "file", text_event("notes", 1, "x" * 2000)
    write_records(path, [version_event(1.0), filler])
    file = open_file(path)
    read_chunks(file)
    write_records(tmp_path / "new", [version_event(2.0), filler, filler])
    (tmp_path / "new").replace(path)
    with pytest.raises(FileReplaced):
        file.read()


def test_file_copied_and_grown_is_read_as_same_file(path):
    file = open_file(path)
    read_chunks(file)
    copy = path.with_name("copy")
    copy.write_bytes(
        path.read_bytes() + encode_record(scalar_event("loss", 100, 1.0).SerializeToString())
    )
    copy.replace(path)
    series, _ = join(read_chunks(file))
    assert [step for step, *_ in series["loss"].points] == [100]


def test_no_file_stays_open(path):
    before = len(list(Path("/dev/fd").iterdir()))
    files = [open_file(path) for _ in range(50)]
    for file in files:
        file.read()
    assert len(list(Path("/dev/fd").iterdir())) == before
