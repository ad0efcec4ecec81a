"""Memory that the files and tags of very many runs take."""

from support import event_files
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.entries import FileEntry, Folder
from tbupload.logdir.watcher import ACTIVE_SECONDS
from tbupload.upload.file_cache import TAGS_PER_FILE, FileCache, TagSetInterner
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2

NOW = 1000.0


def cache_and_entries(directory, count, *, is_final=False):
    """Return a cache, and files that were read to their ends and committed; the first has just changed."""
    reading = ReadOptions(
        SeriesFilter(), DEFAULT_LIMITS, is_final=is_final, warn=print, clock=lambda: NOW
    )
    cache = FileCache(reading, StreamCursors(SeriesFilter().digest(), []))
    folder = Folder(None, str(directory))
    entries = [FileEntry(folder, f"tfevents.{number}") for number in range(count)]
    for entry in entries:
        event_files.write_records(directory / entry.name, [event_files.version_event()])
        source = cache.acquire(entry)
        segment = source.next_segment()
        sent = wire_pb2.WriteBatch.FromString(segment.body).segments[0]
        source.acknowledge(
            segment,
            wire_pb2.Cursor(stream=segment.stream, offset=segment.end, checksum=sent.end_checksum),
        )
        entry.committed = entry.size = segment.end
        entry.changed_at = NOW if entry is entries[0] else NOW - ACTIVE_SECONDS
        cache.release(entry)
    return cache, entries


def test_idle_file_readers_are_evicted_before_growing_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("tbupload.upload.file_cache.CACHED_TAGS_MAX", 3 * TAGS_PER_FILE)
    cache, entries = cache_and_entries(tmp_path, 6)
    assert [cache.has_state(entry) for entry in entries] == [
        True,
        False,
        False,
        False,
        True,
        True,
    ]


def test_no_reader_is_kept_of_files_that_nobody_writes_any_more(tmp_path):
    cache, entries = cache_and_entries(tmp_path, 3, is_final=True)
    assert [cache.find(entry) for entry in entries[1:]] == [None, None]


def test_file_ending_in_record_is_kept_without_reader(tmp_path, monkeypatch):
    monkeypatch.setattr("tbupload.upload.file_cache.CACHED_TAGS_MAX", 0)
    cache, entries = cache_and_entries(tmp_path, 2)
    with (tmp_path / entries[1].name).open("ab") as file:
        file.write(b"half")
    entries[1].size += 4
    source = cache.acquire(entries[1])
    assert source.next_segment() is None
    cache.release(entries[1])
    assert cache.find(entries[1]) is source
    assert source.may_change(entries[1].size)
    assert source.unread_bytes() == 4


def test_runs_with_same_tags_share_one_set_of_them():
    sets = TagSetInterner()
    tags = [f"loss{number}" for number in range(3)]
    first, second = (
        sets.intern_union(frozenset(), tags),
        sets.intern_union(frozenset(tags[:1]), tags[1:]),
    )
    assert first is second
    assert sets.intern_union(first, ["more"]) == {*tags, "more"}
