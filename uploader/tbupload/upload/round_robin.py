"""The order in which an upload sends the files of a run: a segment of each in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tbupload.upload.file_upload import FileUpload
from tbupload.upload.segments import EncodedSegment


def round_robin(
    uploads: Iterable[FileUpload],
) -> Iterator[tuple[FileUpload, EncodedSegment | None]]:
    """Yield the segments of one run's files in that order, and each file with None at its end.

    The order decides which plugin owns a tag, and which of two points of one step and wall time is
    stored.
    """
    waiting: deque[FileUpload] = deque()
    for upload in uploads:
        yield from _take_turn(upload, waiting)
    while waiting:
        yield from _take_turn(waiting.popleft(), waiting)


def _take_turn(
    upload: FileUpload, waiting: deque[FileUpload]
) -> Iterator[tuple[FileUpload, EncodedSegment | None]]:
    while (segment := upload.next_segment()) is not None:
        yield upload, segment
        if upload.unread_bytes():
            waiting.append(upload)
            return
    yield upload, None
