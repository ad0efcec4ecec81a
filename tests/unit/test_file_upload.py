"""The upload of one file: what is sent again, and from where, when the server or the file has
changed.
"""

import dataclasses
import errno
import os
import time
from pathlib import Path

import pytest

from support import event_files
from support.clock import Clock
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.errors import Conflict
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.entries import FileEntry, Folder
from tbupload.logdir.scan import FoundFile
from tbupload.upload import file_upload
from tbupload.upload.batches import Batch, fill_batch
from tbupload.upload.file_cache import FileCache
from tbupload.upload.file_errors import CONFIRM_REPLACED_SECONDS, CONFIRM_SECONDS, CONFLICTS_MAX
from tbupload.upload.file_upload import REREAD_SECONDS_MIN, FileUpload
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2

DIGEST = SeriesFilter().digest()


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tfevents.1"
    write(path, range(10))
    return path


def write(path, steps, value=1.0, append=False):
    events = [event_files.scalar_event("loss", step, value) for step in steps]
    event_files.write_records(
        path, events if append else [event_files.version_event(), *events], append=append
    )


def reading_of(limits=DEFAULT_LIMITS, is_final=False, clock=time.monotonic):
    return ReadOptions(
        SeriesFilter(), limits, is_final=is_final, warn=lambda _message: None, clock=clock
    )


def source_of(path, cursors=(), limits=DEFAULT_LIMITS, is_final=False, clock=time.monotonic):
    return FileUpload(
        FoundFile("run", path), reading_of(limits, is_final, clock), StreamCursors(DIGEST, cursors)
    )


def series_of(segment):
    return wire_pb2.WriteBatch.FromString(segment.body).segments[0].series


def cursor_after(segment, skipped=()):
    sent = wire_pb2.WriteBatch.FromString(segment.body).segments[0]
    return wire_pb2.Cursor(
        stream=segment.stream, offset=segment.end, checksum=sent.end_checksum, skipped=skipped
    )


def take_all(source):
    segments = []
    while (segment := source.next_segment()) is not None:
        source.acknowledge(segment, cursor_after(segment))
        segments.append(segment)
    return segments


def conflict(code="cursor_conflict", offset=None, checksum=None):
    return Conflict("refused", code=code, segment=0, offset=offset, checksum=checksum)


def test_file_gives_its_bytes_once_and_then_what_is_appended(path):
    source = source_of(path)
    assert [(each.start, each.end) for each in take_all(source)] == [(0, path.stat().st_size)]
    size = path.stat().st_size
    write(path, range(10, 12), append=True)
    assert [(each.start, each.counts["scalars"]) for each in take_all(source)] == [(size, 2)]
    assert not source.has_more(path.stat().st_size)
    assert source.committed == path.stat().st_size


def test_metadata_is_sent_until_it_is_acknowledged(path):
    source = source_of(path)
    first = source.next_segment()
    assert first.metadata
    source.requeue(first, alone=False)
    assert source.next_segment() is first
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    assert source.next_segment().metadata == {}


def test_metadata_is_sent_again_when_server_took_something_out(path):
    source = source_of(path)
    first = source.next_segment()
    source.acknowledge(
        first, cursor_after(first, [wire_pb2.Skipped(reason="belongs to another plugin", count=10)])
    )
    write(path, [10], append=True)
    second = source.next_segment()
    assert second.metadata == first.metadata
    source.acknowledge(
        second,
        cursor_after(second, [wire_pb2.Skipped(reason="belongs to another plugin", count=11)]),
    )
    write(path, [11], append=True)
    assert source.next_segment().metadata == first.metadata


def test_file_known_to_server_resumes_at_its_cursor(path):
    first = source_of(path).next_segment()
    write(path, [10], append=True)
    resumed = source_of(path, [cursor_after(first)]).next_segment()
    assert (resumed.start, resumed.stream.generation, resumed.counts["scalars"]) == (
        first.end,
        0,
        1,
    )


def test_cursor_of_other_filters_does_not_count(path):
    cursor = cursor_after(source_of(path).next_segment())
    cursor.stream.filters_digest = b"other"
    assert source_of(path, [cursor]).next_segment().start == 0


def test_file_unlike_committed_starts_new_generation(path):
    cursor = cursor_after(source_of(path).next_segment())
    write(path, range(10), value=2.0)
    replaced = source_of(path, [cursor]).next_segment()
    assert (replaced.start, replaced.stream.generation) == (0, 1)
    newest = cursor_after(replaced)
    again = source_of(path, [newest, cursor])
    assert again.next_segment() is None
    assert again.committed == newest.offset


def test_file_with_another_first_record_is_another_stream(path):
    cursor = cursor_after(source_of(path).next_segment())
    event_files.write_records(path, [event_files.version_event(5.0)])
    segment = source_of(path, [cursor]).next_segment()
    assert (segment.start, segment.stream.generation) == (0, 0)
    assert segment.stream.first_record_digest != cursor.stream.first_record_digest


def test_file_truncated_for_good_starts_new_generation(path, clock):
    source = source_of(path, clock=clock)
    take_all(source)
    write(path, range(3), value=2.0)
    assert take_all(source) == []
    clock.now += CONFIRM_REPLACED_SECONDS
    segments = take_all(source)
    assert [(each.start, each.stream.generation, each.counts["scalars"]) for each in segments] == [
        (0, 1, 3)
    ]


def test_file_after_conflict_resumes_at_server_cursor(path):
    source = source_of(path)
    first = source.next_segment()
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    second = source.next_segment()
    source.on_conflict(second, conflict(offset=0, checksum=0))  # the run was deleted on the server
    again = source.next_segment()
    assert (again.start, again.stream.generation, again.counts["scalars"]) == (0, 0, 11)
    assert again.metadata


def test_conflict_about_other_bytes_starts_new_generation(path):
    source = source_of(path)
    segment = source.next_segment()
    source.on_conflict(segment, conflict("stream_replaced", offset=segment.end, checksum=12345))
    again = source.next_segment()
    assert (again.start, again.stream.generation) == (0, 1)


def test_server_without_metadata_gets_it_with_same_bytes(path):
    source = source_of(path)
    first = source.next_segment()
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    second = source.next_segment()
    assert second.metadata == {}
    source.on_conflict(second, conflict("metadata_missing"))
    again = source.next_segment()
    assert (again.start, again.end) == (second.start, second.end)
    assert again.metadata


def test_conflicts_without_end_give_file_up(path):
    source = source_of(path)
    for _ in range(CONFLICTS_MAX + 1):
        source.on_conflict(source.next_segment(), conflict(offset=0, checksum=0))
    assert source.next_segment() is None
    assert "keeps refusing" in source.error.explanation


def test_another_uploader_that_is_further_is_followed(path):
    source = source_of(path)
    first = source.next_segment()
    write(path, range(10, 15), append=True)
    ahead = source_of(path).next_segment()
    source.acknowledge(first, cursor_after(ahead))
    assert source.next_segment() is None
    assert source.committed == ahead.end


def test_skipped_counts_are_kept_across_sessions(path):
    cursor = cursor_after(source_of(path).next_segment(), [wire_pb2.Skipped(reason="bad", count=3)])
    cursors = StreamCursors(DIGEST, [cursor])
    assert cursors.skipped() == {}  # another machine's files are not this upload's
    source = FileUpload(
        FoundFile("run", path),
        ReadOptions(SeriesFilter(), DEFAULT_LIMITS, is_final=True, warn=print),
        cursors,
    )
    assert source.next_segment() is None
    assert cursors.skipped() == {"bad": 3}


def test_segment_too_large_is_split_down_to_one_record(path):
    whole = source_of(path).next_segment()
    source = source_of(path)
    sizes = []
    while True:
        segment = source.next_segment()
        sizes.append(segment.end - segment.start)
        if not source.split(segment, is_permanent=True):
            break
    assert sizes[0] == whole.end
    assert sizes == sorted(sizes, reverse=True)
    source.acknowledge(segment, cursor_after(segment))
    rest = take_all(source)
    assert rest[-1].end == whole.end
    assert 1 + sum(1 for _ in rest) == 11  # the version's record, then one segment a point


def test_chunks_over_server_limit_are_cut(path):
    limits = dataclasses.replace(DEFAULT_LIMITS, batch_bytes_max=300)
    source = source_of(path, limits=limits)
    segments = take_all(source)
    assert len(segments) > 1
    assert max(len(each.body) for each in segments) <= 300
    assert sum(each.counts["scalars"] for each in segments) == 10
    write(path, range(10, 14), append=True)
    assert len(take_all(source)) == 1


def test_segment_has_no_more_series_than_a_request_may_take(tmp_path, monkeypatch):
    monkeypatch.setattr(file_upload, "SEGMENT_SERIES_MAX", 40)
    path, tags = tmp_path / "tfevents.1", 41
    events = (event_files.scalar_event(f"w{tag}", 0, 1.0) for tag in range(tags))
    event_files.write_records(path, [event_files.version_event(), *events])
    segments = take_all(source_of(path))
    counts = [len(series_of(segment)) for segment in segments]
    assert max(counts) <= 40
    assert sum(counts) == tags

    values = [event_files.pb.Summary.Value(tag=f"w{tag}", simple_value=1) for tag in range(tags)]
    event_files.write_records(path, [event_files.summary_event(0, 0.0, *values)])
    (segment,) = take_all(source_of(path))
    assert len(series_of(segment)) == tags  # a record is not cut


def test_file_that_is_none_is_in_trouble_until_it_is_one(tmp_path):
    path = tmp_path / "tfevents.1"
    source = source_of(path)
    assert source.next_segment() is None
    assert source.error.kind == "unreadable file"
    path.write_text("no event file at all, but a text")
    assert source.next_segment() is None
    assert source.error.kind == "file that is no event file"
    write(path, range(3))
    assert source.next_segment().counts["scalars"] == 3
    assert source.error is None


def test_file_that_begins_with_half_record_is_waited_for(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:7])
    source = source_of(path, is_final=True)
    assert source.next_segment() is None
    assert source.error is None
    assert source.unread_bytes() == 7
    path.write_bytes(whole)
    assert source.next_segment().start == 0


def run_of(directory, names):
    """Return a run with small files of these names that are pending."""
    folder = Folder(Folder(None, str(directory)), "run")
    for name in names:
        write(directory / "run" / name, range(2))
    folder.pending = [FileEntry(folder, name) for name in names]
    return folder


def cache_of():
    return FileCache(reading_of(), StreamCursors(DIGEST, []))


def next_batch(folder, cache, has_time=lambda: True):
    batch, finished = Batch(1 << 20), []
    fill_batch(batch, folder, cache, finished.append, has_time)
    return [segment.stream.file_name for segment in batch.segments], [
        entry.name for entry in finished
    ]


def test_files_of_one_run_go_into_one_batch_in_order_they_wait(tmp_path):
    folder = run_of(tmp_path, ["tfevents.1", "tfevents.2", "tfevents.3"])
    write(tmp_path / "run" / "tfevents.2", [])
    (tmp_path / "run" / "tfevents.2").write_bytes(b"")
    assert next_batch(folder, cache_of()) == (["tfevents.1", "tfevents.3"], ["tfevents.2"])
    assert folder.pending == []


def test_run_of_many_files_takes_no_longer_than_it_may(tmp_path):
    folder = run_of(tmp_path, ["tfevents.1", "tfevents.2", "tfevents.3"])
    turns = iter([True, False])
    assert next_batch(folder, cache_of(), lambda: next(turns)) == (["tfevents.1"], [])
    assert [entry.name for entry in folder.pending] == ["tfevents.2", "tfevents.3"]


def test_segment_that_travels_alone_has_no_other_beside_it(tmp_path):
    folder, cache = run_of(tmp_path, ["tfevents.1", "tfevents.2", "tfevents.3"]), cache_of()
    suspect = cache.acquire(folder.pending[1])
    suspect.requeue(suspect.next_segment(), alone=True)
    names = []
    while folder.pending:
        names.append(next_batch(folder, cache)[0])
    assert names == [["tfevents.1"], ["tfevents.2"], ["tfevents.3"]]


def test_damaged_record_is_read_again_before_reported(path, clock):
    source = source_of(path, clock=clock)
    whole = path.read_bytes()
    event_files.spoil_payload(path, 5)
    assert source.next_segment() is None
    assert source.has_unconfirmed_error
    size = path.stat().st_size
    assert not source.needs_reread(size, 0.0)
    clock.now += REREAD_SECONDS_MIN
    assert source.needs_reread(size, 0.0)
    path.write_bytes(
        whole
    )  # over a network, the bytes of a page may arrive after those of the next one
    segment = source.next_segment()
    assert (segment.counts["scalars"], segment.skipped) == (10, {})
    assert not source.has_unconfirmed_error


def test_damage_that_stays_is_skipped_and_counted(path, clock):
    source = source_of(path, clock=clock)
    event_files.spoil_payload(path, 5)
    assert source.next_segment() is None
    clock.now += CONFIRM_SECONDS
    segment = source.next_segment()
    assert (segment.counts["scalars"], sum(segment.skipped.values())) == (9, 1)
    assert not source.has_unconfirmed_error


def test_nobody_is_waited_for_when_file_is_final(path):
    event_files.spoil_payload(path, 5)
    segment = source_of(path, is_final=True).next_segment()
    assert sum(segment.skipped.values()) == 1


def test_bad_length_stops_file_when_it_stays(path, clock):
    source = source_of(path, clock=clock)
    event_files.spoil_length(path, 5)
    assert [segment.counts["scalars"] for segment in take_all(source)] == [4]
    assert source.has_unconfirmed_error
    clock.now += CONFIRM_SECONDS
    assert source.next_segment() is None
    assert source.error.kind == "corrupt file"
    assert not source.has_unconfirmed_error


@pytest.mark.parametrize("filled", [0, 5])
def test_room_made_for_records_to_come_is_no_damage(tmp_path, clock, filled):
    path = tmp_path / "tfevents.1"
    records = event_files.encode_records(
        [event_files.scalar_event("loss", step, 1.0) for step in range(10)]
    )
    path.write_bytes(records)
    end = event_files.record_offsets(path)[filled]
    path.write_bytes(records[:end] + bytes(100_000))
    source = source_of(path, clock=clock)
    assert sum(segment.counts["scalars"] for segment in take_all(source)) == filled
    clock.now += 1000
    assert source.next_segment() is None
    assert source.error is None
    clock.now += REREAD_SECONDS_MIN
    assert source.needs_reread(path.stat().st_size, 10.0)
    path.write_bytes(records + bytes(50_000))
    assert sum(segment.counts["scalars"] for segment in take_all(source)) == 10 - filled


def test_errors_that_pass_are_no_trouble_for_good(path, clock, monkeypatch):
    # No file system here fails on request, so the failure comes from the call itself.
    source = source_of(path, is_final=True, clock=clock)
    opening = Path.open
    errors = [
        OSError(errno.ESTALE, os.strerror(errno.ESTALE)),
        OSError(errno.EIO, os.strerror(errno.EIO)),
    ]

    def failing(self, *arguments):
        if errors:
            raise errors.pop(0)
        return opening(self, *arguments)

    monkeypatch.setattr(Path, "open", failing)
    for _ in range(2):
        assert source.next_segment() is None
        assert source.has_unconfirmed_error
        clock.now += 1.0
    assert source.next_segment().counts["scalars"] == 10
    assert source.error is None


def test_skips_of_replaced_file_do_not_count(path, clock):
    cursor = cursor_after(source_of(path).next_segment(), [wire_pb2.Skipped(reason="bad", count=3)])
    cursors = StreamCursors(DIGEST, [cursor])
    source = FileUpload(FoundFile("run", path), reading_of(clock=clock), cursors)
    assert source.next_segment() is None
    assert cursors.skipped() == {"bad": 3}
    write(path, range(3), value=2.0)
    source.next_segment()
    clock.now += CONFIRM_REPLACED_SECONDS
    segment = source.next_segment()
    assert (segment.stream.generation, cursors.skipped()) == (1, {})
    source.acknowledge(segment, cursor_after(segment, [wire_pb2.Skipped(reason="worse", count=1)]))
    assert cursors.skipped() == {"worse": 1}
    event_files.write_records(
        path, [event_files.version_event(5.0)]
    )  # even under another first record
    source.next_segment()
    clock.now += CONFIRM_REPLACED_SECONDS
    source.next_segment()
    assert cursors.skipped() == {}


def test_file_evicted_from_cache_resumes_at_its_cursor(path):
    source = source_of(path)
    first = take_all(source)[0]
    source.evict()
    assert not source.has_more(path.stat().st_size)
    write(path, [10], append=True)
    segment = source.next_segment()
    assert (segment.start, segment.stream.generation, segment.counts["scalars"]) == (
        first.end,
        0,
        1,
    )


def test_limits_come_from_server():
    limits = dataclasses.replace(DEFAULT_LIMITS, tensor_rank_max=3, blob_sequence_length_max=7)
    read_limits = limits.read_limits(100)
    assert (read_limits.tensor_rank_max, read_limits.blob_sequence_length_max) == (3, 7)
