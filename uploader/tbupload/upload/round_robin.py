"""The order in which an upload sends the files of a run: in turns, a segment of each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tbupload.upload.batches import EncodedSegment
from tbupload.upload.file_upload import Source


def in_turns(sources: Iterable[Source]) -> Iterator[tuple[Source, EncodedSegment | None]]:
    """The segments of one run's files in that order; a source comes with None when there is no more to be read in it.

    The order decides whose a tag is that files give to different plugins, and which of two points of one step and wall
    time is kept.
    """
    waiting: deque[Source] = deque()
    for source in sources:
        yield from _turn(source, waiting)
    while waiting:
        yield from _turn(waiting.popleft(), waiting)


def _turn(source: Source, waiting: deque[Source]) -> Iterator[tuple[Source, EncodedSegment | None]]:
    while (segment := source.take()) is not None:
        yield source, segment
        if source.unread_bytes():
            waiting.append(source)
            return
    yield source, None
