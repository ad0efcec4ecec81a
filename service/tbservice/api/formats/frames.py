"""Points as frames of `tbwire/read.proto`: lossless, compact, and recognizably truncated if cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tbservice.api.formats.values import VALUE_FORMATS
from tbservice.errors import ObjectUnreadable
from tbservice.reading.full_scan import SeriesChunk
from tbservice.reading.loaded_chunks import LostPoint
from tbwire import read_pb2
from tbwire.frames import encode_frame

_TABLE_FRAME_BYTES_MAX: Final = 1024 * 1024
"""Maximum number of bytes of a table in a frame: clients buffer complete frames."""


def encode_frames(
    chunks: Iterable[SeriesChunk], sampling: str, lost: deque[LostPoint] | None = None
) -> Iterator[bytes]:
    """Yield a `begin` frame, a `part` frame per chunk, and an `end` frame with their counts.

    Points that are appended to `lost` while the chunks are read are removed from it, and yielded as
    `lost` frames before the next frame.
    """
    yield _begin_frame(sampling)
    counter = _ChunkCounter(chunks)
    for chunk in counter:
        yield from _drain_lost(lost)
        yield encode_frame(read_pb2.Frame(part=_part_message(chunk)))

    yield from _drain_lost(lost)
    yield counter.end_frame()


def table_frames(
    chunks: Iterable[SeriesChunk],
    encode_table: Callable[[Iterable[SeriesChunk]], Iterator[bytes]],
    sampling: str,
    lost: deque[LostPoint],
) -> Iterator[bytes]:
    """Yield frames as `encode_frames`, with `table` frames in place of `part` frames.

    Args:
        chunks: Chunks of series; those of one series are adjacent.
        encode_table: Encodes chunks in another format; its bytes become `table` frames, of at
            most `_TABLE_FRAME_BYTES_MAX` bytes each.
        sampling: Name of the sampling rule.
        lost: Queue of omitted points, appended to while the chunks are read.
    """
    yield _begin_frame(sampling)
    counter = _ChunkCounter(chunks)
    for table in encode_table(counter):
        yield from _drain_lost(lost)
        for start in range(0, len(table), _TABLE_FRAME_BYTES_MAX):
            end = start + _TABLE_FRAME_BYTES_MAX
            yield encode_frame(read_pb2.Frame(table=table[start:end]))

    yield from _drain_lost(lost)
    yield counter.end_frame()


class _ChunkCounter:
    """Iterable of chunks that counts their series and points during iteration."""

    def __init__(self, chunks: Iterable[SeriesChunk]) -> None:
        self._chunks = chunks
        self._end = read_pb2.End()

    def __iter__(self) -> Iterator[SeriesChunk]:
        for chunk in self._chunks:
            self._end.series += chunk.is_first
            self._end.points += len(chunk.sample.steps)
            yield chunk

    def end_frame(self) -> bytes:
        """Return the `end` frame, with the counts of the chunks iterated so far."""
        return encode_frame(read_pb2.Frame(end=self._end))


def _begin_frame(sampling: str) -> bytes:
    return encode_frame(read_pb2.Frame(begin=read_pb2.Begin(sampling=sampling)))


def _drain_lost(lost: deque[LostPoint] | None) -> Iterator[bytes]:
    """Yield a `lost` frame for each point in the queue, and remove it."""
    while lost:
        point = lost.popleft()
        message = read_pb2.LostPoint(
            run=point.series.run,
            tag=point.series.tag,
            step=point.step,
            is_unreadable=isinstance(point.error, ObjectUnreadable),
            detail=point.error.detail,
        )
        yield encode_frame(read_pb2.Frame(lost=message))


def _part_message(chunk: SeriesChunk) -> read_pb2.Part:
    message = read_pb2.Part(is_last=chunk.is_last)
    if chunk.is_first:
        message.series.run, message.series.tag, message.series.plugin = (
            chunk.series.run,
            chunk.series.tag,
            chunk.series.plugin,
        )
        message.series.data_class = int(chunk.series.data_class)
        message.series.summary_metadata = chunk.series.summary_metadata
        message.series.total = chunk.sample.total

    VALUE_FORMATS[chunk.sample.data_class].fill_part(message, chunk.sample, chunk.blobs)
    return message
