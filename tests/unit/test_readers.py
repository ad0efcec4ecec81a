"""Readers: what they read, how far ahead, and how many there are."""

import queue
from collections import deque
from concurrent.futures import wait

import pytest

from support import event_files
from support.complete_logdir import write_complete_logdir
from support.waiting import SECONDS_MAX
from tbupload.commands.uploading.dry_run import DEFAULT_LIMITS
from tbupload.events.filters import SeriesFilter
from tbupload.logdir.scan import FoundFile, scan_logdir
from tbupload.upload.file_upload import FileUpload
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.readers import read_loop
from tbupload.upload.readers.choice import BACKLOG_BYTES_MIN, CHOSEN_PROCESSES_MAX, choose_processes
from tbupload.upload.readers.messages import FileEnded, FilesToRead, FileToRead, SegmentRead
from tbupload.upload.readers.pool import ReaderPool, ReaderProcess, ReaderThread
from tbupload.upload.readers.read_loop import BYTES_AHEAD, ReadLoop
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2

DIGEST = SeriesFilter().digest()
READING = ReadOptions(SeriesFilter(), DEFAULT_LIMITS, is_final=True, warn=print)
KINDS = pytest.mark.parametrize("kind", [ReaderProcess, ReaderThread])
LARGE_FILE_BYTES = 4 * BYTES_AHEAD


class EndingInbox(queue.SimpleQueue):
    """An inbox that ends its loop when the loop would wait for a message."""

    def get(self):
        return None if self.empty() else super().get()


class Pool(ReaderPool):
    """Readers, and what they warned of."""

    def __init__(self, kind, count=1):
        self.warnings = []
        super().__init__(count, kind, READING, DIGEST, self.warnings.append)

    def next_segment(self, upload):
        """Wait for the next segment of a file; None when the reader reads no further."""
        while upload.is_waiting:
            assert wait([self.arrival], SECONDS_MAX).done, "nothing arrived"
            self.receive()
        return upload.next_segment()

    def take_all(self, upload):
        """Return the segments of a file, each committed before the next one."""
        segments = []
        while (segment := self.next_segment(upload)) is not None:
            commit(upload, segment)
            segments.append(segment)
        return segments


def commit(upload, segment):
    sent = wire_pb2.WriteBatch.FromString(segment.body).segments[0]
    cursor = wire_pb2.Cursor(stream=segment.stream, offset=segment.end, checksum=sent.end_checksum)
    upload.acknowledge(segment, cursor)


def upload_of(file, cursors=()):
    upload = FileUpload(file, READING, StreamCursors(DIGEST, cursors))
    assert upload.prepare_read_ahead()
    return upload


def read_here(file):
    upload = FileUpload(file, READING, StreamCursors(DIGEST, []))
    segments = []
    while (segment := upload.next_segment()) is not None:
        commit(upload, segment)
        segments.append(segment)
    return segments


@pytest.fixture
def large(tmp_path):
    """A file of several chunks, whose segments are as large as they are."""
    path = tmp_path / "large" / "tfevents.1"
    events = [event_files.text_event("note", step, "x" * (1 << 20)) for step in range(32)]
    event_files.write_records(path, [event_files.version_event(), *events])
    assert path.stat().st_size > LARGE_FILE_BYTES - 1
    return FoundFile("large", path)


@KINDS
def test_readers_read_the_same_as_the_upload(kind, tmp_path):
    files = scan_logdir(write_complete_logdir(tmp_path), SeriesFilter(), 1000).files
    pool = Pool(kind)
    uploads = [upload_of(file) for file in files]
    pool.read(uploads)
    try:
        assert [pool.take_all(upload) for upload in uploads] == [read_here(file) for file in files]
        assert pool.has_room
        assert not pool.ready_bytes
    finally:
        pool.close()


@KINDS
def test_reader_reads_large_file_as_the_upload_does(kind, large):
    pool = Pool(kind)
    upload = upload_of(large)
    pool.read([upload])
    try:
        assert pool.take_all(upload) == read_here(large)
    finally:
        pool.close()


def test_reader_reads_on_from_the_cursor(large):
    first, *others = read_here(large)
    sent = wire_pb2.WriteBatch.FromString(first.body).segments[0]
    cursor = wire_pb2.Cursor(stream=first.stream, offset=first.end, checksum=sent.end_checksum)
    pool = Pool(ReaderThread)
    upload = upload_of(large, [cursor])
    pool.read([upload])
    try:
        taken = pool.take_all(upload)
    finally:
        pool.close()
    assert [(each.start, each.end) for each in taken] == [(each.start, each.end) for each in others]


def test_reader_waits_until_segments_are_taken(large):
    sent = []
    loop = ReadLoop(READING, DIGEST, sent.append)
    loop.inbox = EndingInbox()
    loop.inbox.put(FilesToRead([FileToRead(0, large.path, large.run, b"", 0)]))
    loop.run()
    sizes = [message.segment.size for message in sent]
    assert sum(sizes[:-1]) < BYTES_AHEAD <= sum(sizes) < LARGE_FILE_BYTES / 2


def test_reader_reads_one_segment_of_every_file(large, tmp_path):
    event_files.write_records(tmp_path / "small", [event_files.version_event()])
    sent = []
    loop = ReadLoop(READING, DIGEST, sent.append)
    loop.inbox = EndingInbox()
    loop.inbox.put(FilesToRead([FileToRead(0, large.path, large.run, b"", 0)]))
    loop.run()
    loop.inbox.put(FilesToRead([FileToRead(1, tmp_path / "small", "small", b"", 0)]))
    del sent[:]
    loop.run()
    assert [type(message) for message in sent if message.number == 1] == [SegmentRead]


def test_reader_leaves_what_it_cannot_read_to_the_upload(tmp_path, monkeypatch):
    monkeypatch.setattr(read_loop, "SEGMENT_SERIES_MAX", 40)
    (tmp_path / "tfevents.1").write_bytes(b"no event file" * 10)
    events = (event_files.scalar_event(f"w{tag}", 0, 1.0) for tag in range(41))
    event_files.write_records(tmp_path / "many", [event_files.version_event(), *events])
    sent = []
    loop = ReadLoop(READING, DIGEST, sent.append)
    loop.inbox = EndingInbox()
    files = [tmp_path / "tfevents.1", tmp_path / "missing", tmp_path / "many"]
    loop.inbox.put(
        FilesToRead([FileToRead(at, path, "run", b"", 0) for at, path in enumerate(files)])
    )
    loop.run()
    assert sent == [FileEnded(0), FileEnded(1), FileEnded(2)]


@KINDS
def test_dropped_file_makes_room_for_others(kind, large):
    pool = Pool(kind)
    uploads = deque()
    try:
        while pool.has_room:
            uploads.append(upload_of(large))
            pool.read([uploads[-1]])
        uploads.popleft().leave_ahead()
        assert pool.has_room
        upload = upload_of(large)
        pool.read([upload])
        while uploads:
            uploads.popleft().leave_ahead()
        assert pool.take_all(upload) == read_here(large)
    finally:
        pool.close()


def test_file_of_a_killed_reader_is_read_on(large):
    pool = Pool(ReaderProcess)
    upload = upload_of(large)
    pool.read([upload])
    try:
        taken = [pool.next_segment(upload)]
        commit(upload, taken[0])
        pool._readers[0]._process.kill()
        taken += pool.take_all(upload)
    finally:
        pool.close()
    assert [(each.start, each.end, each.counts) for each in taken] == [
        (each.start, each.end, each.counts) for each in read_here(large)
    ]
    (warning,) = pool.warnings
    assert "was ended by signal 9; read on without it" in warning
    assert str(large.path) in warning
    assert not pool.is_alive


def test_server_that_forgets_metadata_is_sent_it_again(large):
    pool = Pool(ReaderThread)
    upload = upload_of(large)
    pool.read([upload])
    try:
        first = pool.next_segment(upload)
        sent = wire_pb2.WriteBatch.FromString(first.body).segments[0]
        skipped = [wire_pb2.Skipped(reason="tag of another plugin", count=1)]
        cursor = wire_pb2.Cursor(
            stream=first.stream, offset=first.end, checksum=sent.end_checksum, skipped=skipped
        )
        upload.acknowledge(first, cursor)
        second = pool.next_segment(upload)
    finally:
        pool.close()
    assert second.start == first.end
    assert second.metadata == first.metadata != {}


@pytest.mark.parametrize(
    ("unread_bytes", "cores", "is_live", "count"),
    [
        (BACKLOG_BYTES_MIN, 4, False, 3),
        (BACKLOG_BYTES_MIN, 100, False, CHOSEN_PROCESSES_MAX),
        (BACKLOG_BYTES_MIN, 3, False, 2),
        (BACKLOG_BYTES_MIN, 2, False, 0),
        (BACKLOG_BYTES_MIN, -3, False, 0),
        (BACKLOG_BYTES_MIN - 1, 4, False, 0),
        (BACKLOG_BYTES_MIN, 4, True, 0),
    ],
)
def test_idle_cores_read_a_backlog_beside_no_job(unread_bytes, cores, is_live, count):
    assert choose_processes(unread_bytes, cores, is_live=is_live) == count
