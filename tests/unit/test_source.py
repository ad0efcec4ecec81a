"""One file on its way: what is sent again, from where, when the server or the file is not as it was."""

import dataclasses

import pytest

from support import event_files
from tbupload.commands.dry_run import USUAL_LIMITS
from tbupload.errors import Conflict
from tbupload.reading.filters import SeriesFilter
from tbupload.sending.batches import Batch
from tbupload.sending.cursors import CursorBook
from tbupload.sending.scan import FoundFile
from tbupload.sending.source import CONFLICTS_MAX, Reading, Source
from tbupload.sending.upload import RunSources
from tbwire import wire_pb2

DIGEST = SeriesFilter().digest()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tfevents.1"
    write(path, range(10))
    return path


def write(path, steps, value=1.0, append=False):
    events = [event_files.scalar_event("loss", step, value) for step in steps]
    event_files.write_records(path, events if append else [event_files.version_event(), *events], append=append)


def source_of(path, cursors=(), limits=USUAL_LIMITS, is_final=False):
    reading = Reading(SeriesFilter(), limits, is_final=is_final, say=lambda _message: None)
    return Source(FoundFile("run", path), reading, CursorBook(DIGEST, cursors))


def cursor_after(segment, skipped=()):
    sent = wire_pb2.WriteBatch.FromString(segment.body).segments[0]
    return wire_pb2.Cursor(stream=segment.stream, offset=segment.end, checksum=sent.end_checksum, skipped=skipped)


def take_all(source):
    segments = []
    while (segment := source.take()) is not None:
        source.acknowledge(segment, cursor_after(segment))
        segments.append(segment)
    return segments


def conflict(code="cursor_conflict", offset=None, checksum=None):
    return Conflict("refused", code=code, segment=0, offset=offset, checksum=checksum)


def test_a_file_gives_its_bytes_once_and_then_what_is_appended(path):
    source = source_of(path)
    assert [(each.start, each.end) for each in take_all(source)] == [(0, path.stat().st_size)]
    size = path.stat().st_size
    write(path, range(10, 12), append=True)
    assert [(each.start, each.counts["scalars"]) for each in take_all(source)] == [(size, 2)]
    assert source.is_at_end()
    assert source.committed == path.stat().st_size


def test_metadata_is_sent_until_it_is_acknowledged(path):
    source = source_of(path)
    first = source.take()
    assert first.metadata
    source.send_back(first, alone=False)
    assert source.take() is first
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    assert source.take().metadata == {}


def test_a_known_file_goes_on_at_its_cursor(path):
    first = source_of(path).take()
    write(path, [10], append=True)
    resumed = source_of(path, [cursor_after(first)]).take()
    assert (resumed.start, resumed.stream.generation, resumed.counts["scalars"]) == (first.end, 0, 1)


def test_a_cursor_of_other_filters_does_not_count(path):
    cursor = cursor_after(source_of(path).take())
    cursor.stream.filters_digest = b"other"
    assert source_of(path, [cursor]).take().start == 0


def test_a_file_that_is_not_what_was_committed_starts_a_new_generation(path):
    cursor = cursor_after(source_of(path).take())
    write(path, range(10), value=2.0)
    replaced = source_of(path, [cursor]).take()
    assert (replaced.start, replaced.stream.generation) == (0, 1)
    newest = cursor_after(replaced)
    again = source_of(path, [newest, cursor])
    assert again.take() is None
    assert again.committed == newest.offset


def test_a_file_with_another_first_record_is_another_stream(path):
    cursor = cursor_after(source_of(path).take())
    event_files.write_records(path, [event_files.version_event(5.0)])
    segment = source_of(path, [cursor]).take()
    assert (segment.start, segment.stream.generation) == (0, 0)
    assert segment.stream.first_record_digest != cursor.stream.first_record_digest


def test_a_file_truncated_while_it_is_followed_starts_a_new_generation(path):
    source = source_of(path)
    take_all(source)
    write(path, range(3), value=2.0)
    segments = take_all(source)
    assert [(each.start, each.stream.generation, each.counts["scalars"]) for each in segments] == [(0, 1, 3)]


def test_after_a_conflict_it_goes_on_where_the_server_is(path):
    source = source_of(path)
    first = source.take()
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    second = source.take()
    source.resolve(second, conflict(offset=0, checksum=0))  # the run was deleted on the server
    again = source.take()
    assert (again.start, again.stream.generation, again.counts["scalars"]) == (0, 0, 11)
    assert again.metadata


def test_after_a_conflict_about_bytes_that_are_not_its_own_it_starts_a_new_generation(path):
    source = source_of(path)
    segment = source.take()
    source.resolve(segment, conflict("stream_replaced", offset=segment.end, checksum=12345))
    again = source.take()
    assert (again.start, again.stream.generation) == (0, 1)


def test_a_server_without_the_metadata_gets_it_with_the_same_bytes(path):
    source = source_of(path)
    first = source.take()
    source.acknowledge(first, cursor_after(first))
    write(path, [10], append=True)
    second = source.take()
    assert second.metadata == {}
    source.resolve(second, conflict("metadata_missing"))
    again = source.take()
    assert (again.start, again.end) == (second.start, second.end)
    assert again.metadata


def test_conflicts_without_end_give_the_file_up(path):
    source = source_of(path)
    for _ in range(CONFLICTS_MAX + 1):
        source.resolve(source.take(), conflict(offset=0, checksum=0))
    assert source.take() is None
    assert "keeps refusing" in source.trouble.explanation


def test_another_uploader_that_is_further_is_followed(path):
    source = source_of(path)
    first = source.take()
    write(path, range(10, 15), append=True)
    ahead = source_of(path).take()
    source.acknowledge(first, cursor_after(ahead))
    assert source.take() is None
    assert source.committed == ahead.end


def test_what_was_skipped_is_remembered_over_sessions(path):
    cursor = cursor_after(source_of(path).take(), [wire_pb2.Skipped(reason="bad", count=3)])
    cursors = CursorBook(DIGEST, [cursor])
    assert cursors.skipped() == {}  # another machine's files are not this upload's
    source = Source(FoundFile("run", path), Reading(SeriesFilter(), USUAL_LIMITS, is_final=True, say=print), cursors)
    assert source.take() is None
    assert cursors.skipped() == {"bad": 3}


def test_too_large_a_segment_is_read_again_in_smaller_ones_until_it_is_one_record(path):
    whole = source_of(path).take()
    source = source_of(path)
    sizes = []
    while True:
        segment = source.take()
        sizes.append(segment.end - segment.start)
        if not source.narrow(segment, for_good=True):
            break
    assert sizes[0] == whole.end
    assert sizes == sorted(sizes, reverse=True)
    source.acknowledge(segment, cursor_after(segment))
    rest = take_all(source)
    assert rest[-1].end == whole.end
    assert 1 + sum(1 for _ in rest) == 11  # the version's record, then one segment a point


def test_chunks_over_the_servers_limit_are_cut_and_later_ones_are_not(path):
    limits = dataclasses.replace(USUAL_LIMITS, batch_bytes_max=300)
    source = source_of(path, limits=limits)
    segments = take_all(source)
    assert len(segments) > 1
    assert max(len(each.body) for each in segments) <= 300
    assert sum(each.counts["scalars"] for each in segments) == 10
    write(path, range(10, 14), append=True)
    assert len(take_all(source)) == 1


def test_a_file_that_is_none_is_in_trouble_until_it_is_one(tmp_path):
    path = tmp_path / "tfevents.1"
    source = source_of(path)
    assert source.take() is None
    assert source.trouble.kind == "unreadable file"
    path.write_text("no event file at all, but a text")
    assert source.take() is None
    assert source.trouble.kind == "file that is no event file"
    write(path, range(3))
    assert source.take().counts["scalars"] == 3
    assert source.trouble is None


def test_a_file_that_begins_with_half_a_record_is_waited_for(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:7])
    source = source_of(path, is_final=True)
    assert source.take() is None
    assert source.trouble is None
    assert source.unread_bytes() == 7
    path.write_bytes(whole)
    assert source.take().start == 0


def test_files_of_one_run_go_into_one_batch_in_the_order_of_their_names(tmp_path):
    run = RunSources()
    for name in ("tfevents.2", "tfevents.1", "tfevents.3"):
        write(tmp_path / name, range(2))
        run.sources[name] = source_of(tmp_path / name)
    run.begin_pass()
    batch = Batch(1 << 20)
    run.fill(batch)
    assert [segment.stream.file_name for segment in batch.segments] == ["tfevents.1", "tfevents.2", "tfevents.3"]
    assert run.is_drained


def test_a_segment_that_travels_alone_has_no_other_beside_it(tmp_path):
    run = RunSources()
    for name in ("tfevents.1", "tfevents.2", "tfevents.3"):
        write(tmp_path / name, range(2))
        run.sources[name] = source_of(tmp_path / name)
    suspect = run.sources["tfevents.2"]
    suspect.send_back(suspect.take(), alone=True)
    run.begin_pass()
    names = []
    while not run.is_drained:
        batch = Batch(1 << 20)
        run.fill(batch)
        names.append([segment.stream.file_name for segment in batch.segments])
    assert names == [["tfevents.1"], ["tfevents.2"], ["tfevents.3"]]
