"""Read event files: every chunk, joined by tag into comparable values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from support.event_files import encode_records
from support.python39 import zip_strict
from tbupload.events import framing
from tbupload.events.decode import decoder
from tbupload.events.decode.file_parts import FilePart
from tbupload.events.decode.record_rows import PADDING_BYTES
from tbupload.events.event_file import EventFileReader
from tbupload.events.filters import SeriesFilter
from tbupload.events.points import Chunk
from tbupload.events.tag_registry import TagRegistry
from tbupload.limits import ReadLimits
from tbwire import tensorboard_pb2 as pb
from tbwire.points import BlobSequencePoints, ScalarPoints, TensorPoints

LIMITS = ReadLimits(
    tensor_bytes_max=4 << 20,
    blob_bytes_max=1 << 30,
    name_chars_max=10_000,
    metadata_bytes_max=4 << 20,
    logged_content_type_chars_max=255,
)


@dataclass
class Read:
    """One series: points are (step, wall time, value), floats by their bits so that NaN compares.

    `content_types` has what was logged with each point of a blob sequence.
    """

    plugin: str
    metadata: pb.SummaryMetadata
    points: list[tuple] = field(default_factory=list)
    content_types: list[str] = field(default_factory=list)


def open_file(
    path: Path,
    start: int = 0,
    series_filter: SeriesFilter | None = None,
    limits: ReadLimits = LIMITS,
):
    """Return an EventFileReader with the tests' limits and no filter by default."""
    return EventFileReader(
        path, start=start, series_filter=series_filter or SeriesFilter(), limits=limits
    )


def read_chunks(file: EventFileReader, *, final: bool = True) -> list[Chunk]:
    """Return all chunks that can be read now."""
    chunks = []
    while (chunk := file.read(final=final)) is not None:
        chunks.append(chunk)
    return chunks


def join(chunks: Iterable[Chunk]) -> tuple[dict[str, Read], Counter[str]]:
    """Return the series of several chunks by tag, and all skipped counts."""
    series: dict[str, Read] = {}
    skipped: Counter[str] = Counter()
    for chunk in chunks:
        skipped += chunk.skipped
        for read in chunk.series:
            known = series.setdefault(
                read.tag, Read(read.plugin, pb.SummaryMetadata.FromString(read.metadata))
            )
            assert known.plugin == read.plugin
            known.points += points(read.columns)
            if isinstance(read.columns, BlobSequencePoints):
                known.content_types += read.columns.logged_content_types
                assert len(known.content_types) == len(known.points)
    return series, skipped


def points(columns: ScalarPoints | TensorPoints | BlobSequencePoints) -> list[tuple]:
    """Return the points of columns, after checking these."""
    assert (columns.steps.dtype, columns.wall_times.dtype) == (np.int64, np.float64)
    if isinstance(columns, ScalarPoints):
        assert columns.values.dtype in (np.float32, np.float64)
        values = [(str(value.dtype), value.tobytes()) for value in columns.values]
    else:
        values = columns.tensors if isinstance(columns, TensorPoints) else columns.sequences
    walls = [wall_time.tobytes() for wall_time in columns.wall_times]
    return zip_strict(columns.steps.tolist(), walls, values)


def read_all(path: Path, **options) -> tuple[dict[str, Read], Counter[str]]:
    """Return every series of the file, and the skipped counts."""
    return join(read_chunks(open_file(path, **options)))


@contextmanager
def one_by_one():
    """Decode each record by protobuf until the block ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder, "find_periodic_records", lambda *_: ())
        patch.setattr(decoder, "_GROUP_RECORDS_MIN", 1 << 60)
        yield


def decode(payloads, *, bulk=True, series_filter=None, spoilt=()):
    """Return the points of records by tag, and the skipped counts; `spoilt` are records to damage.

    Unless in `bulk`, each record is decoded by protobuf.
    """
    buffer = bytearray(encode_records(payloads))
    frames = framing.find_records(bytes(buffer), 0)
    for record in spoilt:
        buffer[int(frames.starts[record]) + 12 + int(frames.lengths[record])] ^= 1
    memory = TagRegistry(series_filter or SeriesFilter(), LIMITS)
    with nullcontext() if bulk else one_by_one():
        part = FilePart(memory, len(frames.starts))
        decoder.ChunkDecoder(bytes(buffer) + bytes(PADDING_BYTES), frames, [part], LIMITS).decode()
    return join([Chunk(0, len(buffer), 0, 0, part.series, part.skipped)])


def assert_same_both_ways(payloads, **options):
    """Return what `decode` returns, after checking that it is the same in bulk and one by one."""
    in_bulk, one_by_one = decode(payloads, **options), decode(payloads, bulk=False, **options)
    assert in_bulk == one_by_one
    assert list(in_bulk[0]) == list(one_by_one[0])
    return in_bulk
