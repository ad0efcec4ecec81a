"""The work of a reader: event files to encoded segments, a bounded number of bytes ahead."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from typing import Final

from tbupload.errors import ReadError
from tbupload.events import multi_file_decode, skip_reasons
from tbupload.events.event_file import EventFileReader
from tbupload.limits import CHUNK_BYTES
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.readers.messages import (
    FileDropped,
    FileEnded,
    FilesToRead,
    FileToRead,
    FromReader,
    SegmentRead,
    SegmentTaken,
    ToReader,
)
from tbupload.upload.segments import SEGMENT_SERIES_MAX, EncodedSegment, encode_segment
from tbwire import wire_pb2

BYTES_AHEAD: Final = 8 << 20
"""Bytes of segments that were not taken yet, of all files of a reader, from which it waits.

One segment of each file is always read: the upload may need it before it can take any other.
"""


class _OpenFile:
    """A file that is being read; `segments_ahead` of it were not taken yet."""

    __slots__ = ("metadata", "number", "reader", "run", "segments_ahead", "stream")

    def __init__(self, file: FileToRead, reader: EventFileReader) -> None:
        self.number = file.number
        self.run = file.run
        self.reader = reader
        self.segments_ahead = 0
        self.metadata: dict[str, bytes] = {}
        self.stream = wire_pb2.Stream.FromString(file.stream) if file.stream else None

    def unread(self) -> EventFileReader | None:
        """Return the reader if it is at the first byte."""
        return None if self.reader.offset else self.reader


class ReadLoop:
    """Reads the files that messages ask for, a chunk of each in turn.

    Whatever is out of the ordinary in a file, such as damage, is left to the upload: reading it
    again there gives the same error, and the upload decides what follows.

    Args:
        options: How files are read.
        filters_digest: Digest of the filters, a part of every stream.
        send: Called with each message to the upload, in order.
    """

    def __init__(
        self, options: ReadOptions, filters_digest: bytes, send: Callable[[FromReader], None]
    ) -> None:
        self.inbox: queue.SimpleQueue[ToReader | None] = queue.SimpleQueue()
        self._options = options
        self._filters_digest = filters_digest
        self._send = send
        self._files: dict[int, _OpenFile] = {}
        self._bytes_ahead = 0

    def run(self) -> None:
        """Read until the inbox has None."""
        while self._handle_messages():
            for file in list(self._files.values()):
                if self._may_read(file):
                    self._read(file)

    def _may_read(self, file: _OpenFile) -> bool:
        return self._bytes_ahead < BYTES_AHEAD or not file.segments_ahead

    def _handle_messages(self) -> bool:
        """Handle what is in the inbox, waiting if no file can be read; False at its end."""
        while not self.inbox.empty() or not any(map(self._may_read, self._files.values())):
            message = self.inbox.get()
            if message is None:
                return False
            if isinstance(message, FilesToRead):
                self._open(message.files)
            elif isinstance(message, FileDropped):
                self._files.pop(message.number, None)
            else:
                self._count_taken(message)
        return True

    def _count_taken(self, message: SegmentTaken) -> None:
        self._bytes_ahead -= message.size
        file = self._files.get(message.number)
        if file is not None:
            file.segments_ahead -= 1

    def _open(self, files: list[FileToRead]) -> None:
        limits = self._options.limits.read_limits(CHUNK_BYTES)
        opened = [
            _OpenFile(
                file,
                EventFileReader(
                    file.path,
                    start=file.offset,
                    series_filter=self._options.series_filter,
                    limits=limits,
                ),
            )
            for file in files
        ]
        if len(opened) > 1:
            together = multi_file_decode.read_together(
                opened, _OpenFile.unread, lambda _file, _digest: True, final=self._options.is_final
            )
            deque(together, maxlen=0)
        self._files.update((file.number, file) for file in opened)

    def _read(self, file: _OpenFile) -> None:
        """Send the next segment of the file, or that it has ended."""
        try:
            segment = self._next_segment(file)
        except (ReadError, OSError):
            segment = None
        if segment is None:
            del self._files[file.number]
            self._send(FileEnded(file.number))
            return

        file.segments_ahead += 1
        self._bytes_ahead += segment.size
        self._send(SegmentRead(file.number, segment))

    def _next_segment(self, file: _OpenFile) -> EncodedSegment | None:
        if file.stream is None:
            file.stream = self._new_stream(file)
        chunk = file.reader.read(final=self._options.is_final)
        if file.stream is None or chunk is None:
            return None
        # To be confirmed by the upload: the record may be complete later.
        if chunk.skipped[skip_reasons.RECORD_DAMAGED] and not self._options.is_final:
            return None

        segment = encode_segment(
            file.stream, chunk, file.reader.start_time, file.metadata, self._options.limits
        )
        # To be split by the upload.
        is_large = len(segment.body) > self._options.limits.batch_bytes_max
        if is_large or len(chunk.series) > SEGMENT_SERIES_MAX:
            return None
        file.metadata.update(segment.metadata)
        return segment

    def _new_stream(self, file: _OpenFile) -> wire_pb2.Stream | None:
        """Return the stream of a file that is new to the server; None without a first record."""
        digest = file.reader.first_record_digest()
        if digest is None:
            return None
        return wire_pb2.Stream(
            run=file.run,
            file_name=file.reader.path.name,
            first_record_digest=digest,
            filters_digest=self._filters_digest,
        )
