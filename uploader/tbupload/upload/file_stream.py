"""The identity of an event file on the server: its stream, its cursor, the metadata it has sent."""

from __future__ import annotations

from tbupload.errors import Conflict
from tbupload.events.event_file import EventFileReader
from tbupload.logdir.scan import FoundFile
from tbupload.upload.segments import EncodedSegment
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2


class FileStream:
    """Stream of a file, and how much of it the server has committed.

    `message` is the stream on the wire; None until the file's first record has been read, and after
    an eviction. `committed` is the cursor's offset in bytes. `acknowledged` is the summary metadata
    the server has, by tag: the next segments leave it out.
    """

    __slots__ = ("_cursors", "acknowledged", "committed", "message", "path", "run")

    def __init__(self, file: FoundFile, cursors: StreamCursors) -> None:
        self.run = file.run
        self.path = file.path
        self.message: wire_pb2.Stream | None = None
        self.committed = 0
        self.acknowledged: dict[str, bytes] = {}
        self._cursors = cursors

    def is_new_to_server(self, first_record_digest: bytes) -> bool:
        """Return whether the server has no cursor for a file with this first record."""
        return self._cursors.find((self.run, self.path.name, first_record_digest)) is None

    def identify(self, reader: EventFileReader) -> int | None:
        """Find the file's stream by its first record, and return the offset to read from.

        That is the committed one, if the bytes before it are those that were committed; otherwise
        the file was replaced, and becomes a new generation of the stream. Returns None, and leaves
        the stream unknown, while the first record is incomplete.
        """
        digest = reader.first_record_digest()
        if digest is None:
            return None

        generation = offset = 0
        name = (self.run, self.path.name, digest)
        known = self._cursors.find(name)
        is_known = known is not None and reader.matches(known.offset, known.checksum)
        if known is not None:
            generation, offset = (
                (known.generation, known.offset) if is_known else (known.generation + 1, 0)
            )
        self._cursors.start_file(name, is_known=is_known)

        self.message = wire_pb2.Stream(
            run=self.run,
            file_name=self.path.name,
            first_record_digest=digest,
            generation=generation,
            filters_digest=self._cursors.filters_digest,
        )
        self.committed = offset
        return offset

    def adopt(self, message: wire_pb2.Stream) -> bool:
        """Set the stream of a file that another process has read from its first byte.

        Returns False, and leaves the stream unknown, if the server has a cursor of it.
        """
        name = (self.run, self.path.name, message.first_record_digest)
        if self._cursors.find(name) is not None:
            return False
        self._cursors.start_file(name, is_known=False)
        self.message = message
        self.committed = 0
        return True

    @property
    def may_be_known(self) -> bool:
        """Return whether the server had a stream of the file's run at the start."""
        return self._cursors.has_run(self.run)

    def acknowledge(self, segment: EncodedSegment, cursor: wire_pb2.Cursor) -> bool:
        """Record that a segment is committed; return whether the next bytes to send follow it.

        Returns False when another uploader has moved the cursor of the same stream further. True
        for a segment of an earlier stream, as when the file was replaced while it was being sent.
        """
        is_current = segment.stream == self.message
        file_name = self.path.name
        skipped_by_us = sum(self._cursors.skipped_in(self.run, file_name).values()) + sum(
            segment.skipped.values()
        )
        self._cursors.update(cursor, is_current=is_current)
        if not is_current:
            return True

        self.committed = cursor.offset
        if sum(self._cursors.skipped_in(self.run, file_name).values()) <= skipped_by_us:
            # Otherwise the server skipped tags that belong to another plugin, which it recognizes
            # by their metadata: the next segment has to contain it again.
            self.acknowledged.update(segment.metadata)
        return cursor.offset == segment.end

    def move_to(self, segment: EncodedSegment, conflict: Conflict) -> None:
        """Adopt the cursor a conflict came with, if it came with one."""
        if conflict.offset is not None:
            self._cursors.reset(segment.stream, conflict.offset, conflict.checksum or 0)

    def evict(self) -> None:
        """Drop what can be file again by `identify`; `committed` stays."""
        self.message = None
        self.acknowledged = {}

    def reset(self) -> None:
        """Return to the state before the file was read."""
        self.evict()
        self.committed = 0
