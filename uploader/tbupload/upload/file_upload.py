"""One event file being uploaded: its next segment, and what follows from the server's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from tbupload.console.texts import counted
from tbupload.errors import Conflict, FileReplaced, ReadError
from tbupload.events import multi_file_decode, skip_reasons
from tbupload.events.event_file import EventFileReader
from tbupload.events.points import Chunk
from tbupload.logdir.scan import FoundFile
from tbupload.upload.file_errors import (
    REFUSED,
    RUN_DELETED,
    ErrorDebouncer,
    FileError,
    run_deleted_text,
)
from tbupload.upload.file_stream import FileStream
from tbupload.upload.prefetch import Prefetch
from tbupload.upload.read_ahead import ReadAhead
from tbupload.upload.read_options import ReadOptions
from tbupload.upload.repeated_steps import RepeatedSteps
from tbupload.upload.segments import (
    SEGMENT_SERIES_MAX,
    EncodedSegment,
    drop_largest_series,
    encode_segment,
)
from tbupload.upload.stream_cursors import StreamCursors
from tbwire import wire_pb2

REPLACEMENTS_MAX: Final = 3
"""Restarts of a file in one read, if it is replaced again and again."""

REREAD_SECONDS_MIN: Final = 0.5
REREAD_SECONDS_MAX: Final = 60.0
"""Bounds of the pause before a file that could not be read to its end is read again unchanged."""

REREADS_PER_QUIET_TIME: Final = 20
"""Between the bounds, the pause is this fraction of the time since the file's last change."""


class FileUpload:
    """Gives the segments of a file one after the other.

    The next segment may be asked for after `acknowledge`, `requeue`, `on_conflict`, `split` or
    `give_up` was called for the last one; `prefetch` may be called at any time. An error stays with
    its file and never ends the upload.

    Each part of the state has one owner: `FileStream` has the file's identity and cursor,
    `Prefetch` what was read ahead, `ErrorDebouncer` its error.

    `is_sent_alone` means that the next segment is suspected of failing its batch. `read_at` is when
    the file was last read, by the clock of the options.
    """

    __slots__ = (
        "_errors",
        "_options",
        "_prefetch",
        "_repeated_steps",
        "_stream",
        "is_sent_alone",
        "read_at",
    )

    def __init__(self, file: FoundFile, options: ReadOptions, cursors: StreamCursors) -> None:
        self.is_sent_alone = False
        self.read_at = 0.0
        self._options = options
        self._stream = FileStream(file, cursors)
        self._prefetch = Prefetch(self._stream, options)
        self._errors = ErrorDebouncer(file.path, is_final=options.is_final, clock=options.clock)
        self._repeated_steps: RepeatedSteps | None = None

    @property
    def run(self) -> str:
        """Return the name of the file's run."""
        return self._stream.run

    @property
    def path(self) -> Path:
        """Return the file's path."""
        return self._stream.path

    @property
    def committed(self) -> int:
        """Return the bytes of the file that the server has committed."""
        return self._stream.committed

    @property
    def error(self) -> FileError | None:
        """Return why the file cannot be sent (further), or None."""
        return self._errors.error

    @property
    def has_unconfirmed_error(self) -> bool:
        """Return whether the last read found an error that may pass: to be read again soon."""
        return self._errors.was_unconfirmed_at(self.read_at)

    @property
    def tag_count(self) -> int:
        """Return the number of tags with metadata in memory: most of the memory a file takes."""
        return len(self._stream.acknowledged)

    def prefetch(self) -> Chunk | None:
        """Return the next chunk without consuming it; None if there is nothing new, or an error."""
        ahead = self._prefetch
        if ahead.ahead is not None:
            return None
        if ahead.chunk is None and not self._errors.is_given_up:
            ahead.chunk = self._read_chunk()
        return ahead.chunk

    def unread_file(self) -> EventFileReader | None:
        """Return a reader of the file if it has not been read, to decode it together with others.

        Has to be called before `prefetch`.
        """
        return None if self._errors.is_given_up else self._prefetch.open_unread()

    def is_new_to_server(self, first_record_digest: bytes) -> bool:
        """Return whether a file with this first record is read from its first byte."""
        return self._stream.is_new_to_server(first_record_digest)

    def next_segment(self, check: Callable[[Chunk], None] | None = None) -> EncodedSegment | None:
        """Return the next segment; None if there is nothing to send now.

        `check` is called with its chunk before that is consumed, and may raise.
        """
        ahead = self._prefetch
        # First, as it precedes the chunk that was read ahead.
        if ahead.requeued is not None:
            segment, ahead.requeued = ahead.requeued, None
            return segment
        segment_ahead = self._take_ahead()
        if segment_ahead is not None:
            return segment_ahead
        chunk = self.prefetch()
        if chunk is None:
            return None
        if check is not None:
            # Before it is consumed: if this raises, another upload of the run begins with the same
            # chunk.
            check(chunk)
        ahead.chunk = None
        return self._encode_within_limit(chunk)

    @property
    def is_waiting(self) -> bool:
        """Return whether another process is still reading the next segment."""
        ahead = self._prefetch
        return ahead.requeued is None and ahead.ahead is not None and ahead.ahead.is_waiting

    @property
    def is_read_ahead(self) -> bool:
        """Return whether another process reads the file."""
        return self._prefetch.ahead is not None

    def prepare_read_ahead(self) -> bool:
        """Return whether another process may read the file; its stream and cursor are found then.

        Not a file with an error, nor one of which something was read that is still to be sent.
        """
        errors = self._errors
        if errors.is_given_up or errors.error is not None or errors.has_unconfirmed:
            return False
        if self.is_read_ahead or not self._prefetch.is_empty or self._prefetch.has_small_chunks:
            return False
        if self._stream.message is None and not self._stream.may_be_known:
            return True
        try:
            self._prefetch.find_cursor()
        # Reading it here will find the same, and record it.
        except (ReadError, OSError):
            return False
        return self._stream.message is not None

    def read_ahead_start(self) -> tuple[bytes, int]:
        """Return the serialized stream and the offset at which to begin, after the preparation.

        The stream is empty if the server has none of the run: then the file is a new one.
        """
        message = self._stream.message
        return (b"", 0) if message is None else (message.SerializeToString(), self.committed)

    def attach(self, ahead: ReadAhead) -> None:
        """Take the next segments from another process, which reads the file from now on."""
        self._prefetch.ahead = ahead

    def leave_ahead(self) -> None:
        """Read the file here from now on; nothing of it may be in flight."""
        self._prefetch.leave_ahead()

    def has_more(self, size: int) -> bool:
        """Return whether a file of `size` bytes has another segment."""
        if not self._prefetch.is_empty:
            return True
        return not self._errors.is_given_up and size > self._prefetch.offset

    def may_change(self, size: int) -> bool:
        """Return whether reading again may give more although the file looks unchanged.

        That is so after an error, or with less than `size` bytes read, the size of the file.
        """
        if self._errors.is_given_up:
            return False
        return (
            self.error is not None or self._errors.has_unconfirmed or size > self._prefetch.offset
        )

    def needs_reread(self, size: int, quiet_seconds: float) -> bool:
        """Return whether `may_change` is true and the pause since the last read is over.

        `quiet_seconds` is the time since the file's last change, which the pause depends on.
        """
        if not self.may_change(size):
            return False
        pause = min(
            max(quiet_seconds / REREADS_PER_QUIET_TIME, REREAD_SECONDS_MIN), REREAD_SECONDS_MAX
        )
        return self._options.clock() >= self.read_at + pause

    def evict(self) -> None:
        """Drop what was learned from the file: it is read from its cursor again if it grows.

        Does nothing while something that was read is still to be sent.
        """
        if self._prefetch.is_empty:
            self._prefetch.close()
            self._stream.evict()
            self._repeated_steps = None

    def unread_bytes(self) -> int:
        """Return the number of bytes not yet read as complete records."""
        try:
            size = self.path.stat().st_size
        # Only for a sentence at the end: a file that is gone by now has nothing unread.
        except OSError:
            return 0
        return max(0, size - self._prefetch.offset)

    def incomplete_record_note(self) -> str | None:
        """Return a sentence if the file ends within a record, which is sent once it is complete."""
        count = self.unread_bytes() if self.error is None else 0
        if not count:
            return None
        return f"{self.path}: ends with {counted(count, 'byte')} of an incomplete record"

    def count_repeated(self, segment: EncodedSegment) -> Counter[str]:
        """Return `RepeatedSteps.count` of a segment that was sent, to be called in their order."""
        if self._repeated_steps is None:
            self._repeated_steps = RepeatedSteps(is_partial=segment.start > 0)
        return self._repeated_steps.count(segment.spans)

    def acknowledge(self, segment: EncodedSegment, cursor: wire_pb2.Cursor) -> None:
        """Record that a segment is committed, and where the stream's cursor is now.

        Resumes from the cursor if another uploader is further in the same stream.
        """
        self._errors.clear_conflicts()
        self.is_sent_alone = False
        if not self._stream.acknowledge(segment, cursor):
            self._reset()
        elif (
            self.is_read_ahead and not segment.metadata.items() <= self._stream.acknowledged.items()
        ):
            # The server needs it again, which the other process has sent and leaves out.
            self.leave_ahead()

    def requeue(self, segment: EncodedSegment, *, alone: bool) -> None:
        """Make a segment the next one again, with `alone` in a batch without others.

        For segments that are not the reason why their batch was refused.
        """
        self._prefetch.requeued = segment
        self.is_sent_alone = alone

    def on_conflict(self, segment: EncodedSegment, conflict: Conflict) -> None:
        """Handle a 409: resume from the server's cursor, or resend with metadata.

        Gives the file up after CONFLICTS_MAX conflicts in a row.
        """
        if self._errors.count_conflict():
            self.give_up(f"the server keeps refusing it: {conflict}")
        # Its offsets are those of other bytes.
        if segment.stream != self._stream.message:
            return  # the file was replaced while this segment was being sent
        self._stream.move_to(segment, conflict)
        self._reset()

    def split(self, segment: EncodedSegment, *, is_permanent: bool) -> bool:
        """Read the file again from the start of a segment that was too large, in smaller chunks.

        Returns False if the segment is a single record. With `is_permanent`, chunks stay small: the
        limit is one of the server, or of a proxy, and would be met again.
        """
        return self._prefetch.split(segment, is_permanent=is_permanent)

    def give_up(self, explanation: str, kind: str = REFUSED) -> None:
        """Send nothing more of this file in this upload; `explanation` becomes its error."""
        self._errors.give_up(explanation, kind)
        self._prefetch.clear()

    def on_run_deleted(self) -> None:
        """Give the file up: somebody has deleted its run from the experiment."""
        self.give_up(run_deleted_text(self.run), RUN_DELETED)

    def _take_ahead(self) -> EncodedSegment | None:
        """Return the next segment another process has read; None if the file is read here."""
        ahead = self._prefetch.ahead
        if ahead is None:
            return None
        segment = ahead.take()
        is_known = self._stream.message is not None
        if segment is None or not (is_known or self._stream.adopt(segment.stream)):
            self.leave_ahead()
            return None
        self.read_at = self._options.clock()
        return segment

    def _read_chunk(self) -> Chunk | None:
        """Return the next chunk; None if there is none or if it has an error, which is recorded."""
        self.read_at = self._options.clock()
        # Bounded: a job that replaces its file again and again would keep this thread.
        for _ in range(REPLACEMENTS_MAX):
            try:
                chunk = self._prefetch.read_chunk()
            except FileReplaced as error:
                if self._errors.record_replacement():
                    return None
                self._options.warn(f"{error}; it is sent again from its beginning")
                self._reset()
            except (ReadError, OSError) as error:
                self._errors.record_error(error)
                return None
            else:
                return self._confirm(chunk)
        return None

    def _confirm(self, chunk: Chunk | None) -> Chunk | None:
        """Return the chunk, or None if it has damaged records that may be complete later."""
        if (
            chunk is not None
            and chunk.skipped[skip_reasons.RECORD_DAMAGED]
            and self._errors.record_damage(chunk.start)
        ):
            self._prefetch.read_again(chunk)
            return None
        self._errors.clear()
        return chunk

    def _encode_within_limit(self, chunk: Chunk) -> EncodedSegment | None:
        """Return the chunk as a segment that the server accepts.

        If it is too large, or has too many series, returns the segment of a smaller chunk at the
        same offset; of a single record, one without its largest series.
        """
        parts = -(-len(chunk.series) // SEGMENT_SERIES_MAX)
        if parts > 1 and self._prefetch.split(chunk, is_permanent=True, factor=parts):
            return self.next_segment()
        body_bytes_max = self._options.limits.batch_bytes_max
        segment = self._encode(chunk)
        if len(segment.body) > body_bytes_max and self.split(segment, is_permanent=False):
            return self.next_segment()
        while len(segment.body) > body_bytes_max and chunk.series:
            chunk = drop_largest_series(chunk)
            segment = self._encode(chunk)
        return segment

    def _encode(self, chunk: Chunk) -> EncodedSegment:
        stream = self._stream
        # For the type checker:
        assert stream.message is not None, "a chunk is read of a known stream"  # noqa: S101
        return encode_segment(
            stream.message,
            chunk,
            self._prefetch.start_time,
            stream.acknowledged,
            self._options.limits,
        )

    def _reset(self) -> None:
        """Return to the state before the file was read."""
        self._prefetch.reset()
        self._stream.reset()
        self._repeated_steps = None


def read_together(uploads: Iterable[FileUpload], *, is_final: bool) -> Iterator[FileUpload]:
    """Yield the same uploads in order, with small files that were not read decoded in groups."""
    return multi_file_decode.read_together(
        uploads, FileUpload.unread_file, FileUpload.is_new_to_server, final=is_final
    )
