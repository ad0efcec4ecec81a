"""Batches: segments of several files that are sent in one request, under the server's limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from tbupload.events.points import Blob
from tbupload.logdir.entries import FileEntry, Folder
from tbupload.upload.file_cache import FileCache
from tbupload.upload.file_upload import FileUpload
from tbupload.upload.retraining import RetrainingGuard
from tbupload.upload.segments import EncodedSegment

BATCH_BYTES: Final = 2 << 20
"""Size from which a batch is sent; a smaller one is sent if there is nothing more to add.

Less than the server's limit: a segment is added whole, and a lost request is sent again.
"""

BATCH_SEGMENTS: Final = 1_000
"""Segments in a batch, at most; the server accepts more."""


class BatchFile(NamedTuple):
    """The file of a segment in a batch: its directory entry, and its upload."""

    entry: FileEntry
    upload: FileUpload


@dataclass
class Batch:
    """Segments that are sent in one request, with the file of each in `files`.

    `size` is their size in memory, blobs included; at `target_bytes` the batch is full.
    `body_bytes` is the length of `body()`, never above `bytes_max`. All in bytes.
    """

    bytes_max: int
    target_bytes: int = BATCH_BYTES
    segments: list[EncodedSegment] = field(default_factory=list)
    files: list[BatchFile] = field(default_factory=list)
    size: int = 0
    body_bytes: int = 0
    is_closed: bool = False
    streams_blobs: bool = False

    def has_room(self) -> bool:
        """Return whether to add another segment.

        A batch with blobs streamed from their file is full: other segments should not wait for it.
        """
        if self.is_closed or self.streams_blobs:
            return False
        return len(self.segments) < BATCH_SEGMENTS and self.size < self.target_bytes

    def fits(self, segment: EncodedSegment) -> bool:
        """Return whether the server accepts the batch with this segment added."""
        return self.body_bytes + len(segment.body) <= self.bytes_max

    def add(self, segment: EncodedSegment, file: BatchFile) -> None:
        """Append a segment of this file."""
        self.segments.append(segment)
        self.files.append(file)
        self.size += segment.size
        self.streams_blobs = self.streams_blobs or segment.streams_blobs
        self.body_bytes += len(segment.body)

    def body(self) -> bytes:
        """Return the serialized WriteBatch with all segments.

        Concatenated protobuf messages are one message with the repeated fields of all (Protocol
        Buffers encoding, "Last One Wins"), so no segment is serialized twice.
        """
        # https://protobuf.dev/programming-guides/encoding/#last-one-wins
        return b"".join(segment.body for segment in self.segments)

    def blobs(self) -> dict[bytes, Blob]:
        """Return the blobs to upload before the batch, by SHA-256, each once."""
        return {
            digest: content
            for segment in self.segments
            for digest, content in segment.blobs.items()
        }


def fill_batch(
    batch: Batch,
    folder: Folder,
    cache: FileCache,
    finished: Callable[[FileEntry], None],
    has_time: Callable[[], bool],
    guard: RetrainingGuard | None = None,
) -> None:
    """Add one segment of each pending file of a run while the batch has room and there is time.

    Files in the batch are no longer pending.

    Args:
        batch: The batch to fill.
        folder: The run.
        cache: The uploads of the files.
        finished: Called with each file that has nothing to send.
        has_time: Asked before each file.
        guard: Compares the beginnings of files with what is stored.

    Raises:
        RunRetrained: A file belongs to another training than what is stored of the run.
    """
    pending, folder.pending = folder.pending or [], []

    for index, entry in enumerate(pending):
        if not batch.has_room() or not has_time():
            folder.pending.extend(pending[index:])
            return
        if entry.is_gone:
            continue
        upload = cache.acquire(entry)
        if upload.is_read_ahead and guard is not None and guard.compares(entry, upload.committed):
            # The points are compared before they are encoded.
            upload.leave_ahead()
        if upload.is_waiting:
            # The files of a run are sent in turns: the next ones have to wait as well.
            folder.pending.extend(pending[index:])
            return
        segment = upload.next_segment(partial(guard.check, entry) if guard else None)
        if segment is None:
            finished(entry)
        elif not _add_segment(batch, BatchFile(entry, upload), segment):
            # It does not fit: it is the first of the next batch.
            folder.pending.append(entry)


def _add_segment(batch: Batch, file: BatchFile, segment: EncodedSegment) -> bool:
    """Add the segment and return True, or requeue it, close the batch and return False."""
    upload = file.upload
    # An empty batch takes any segment: the server's answer says whether it is too large.
    if batch.segments and (upload.is_sent_alone or not batch.fits(segment)):
        upload.requeue(segment, alone=upload.is_sent_alone)
        batch.is_closed = True
        return False
    batch.add(segment, file)
    batch.is_closed = upload.is_sent_alone
    return True
