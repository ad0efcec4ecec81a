"""The order in which an upload sends the files of a run: in turns, a segment of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tbupload.upload.file_upload import FileUpload
from tbupload.upload.segments import EncodedSegment


def round_robin(
    sources: Iterable[FileUpload],
) -> Iterator[tuple[FileUpload, EncodedSegment | None]]:
    """The segments of one run's files in that order; a source comes with None when there is no more to be read in it.

    The order decides whose a tag is that files give to different plugins, and which of two points of one step and wall
    time is kept.
    """
    waiting: deque[FileUpload] = deque()
    for source in sources:
        yield from _take_turn(source, waiting)
    while waiting:
        yield from _take_turn(waiting.popleft(), waiting)


def _take_turn(
    source: FileUpload, waiting: deque[FileUpload]
) -> Iterator[tuple[FileUpload, EncodedSegment | None]]:
    while (segment := source.next_segment()) is not None:
        yield source, segment
        if source.unread_bytes():
            waiting.append(source)
            return
    yield source, None
