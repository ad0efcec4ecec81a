"""Event files cut and damaged anywhere: read by the uploader's reader, and compared with a simple
one.

The simple reader is a loop over lengths and checksums. The records it finds are written to another
file, without the damage, and parsed by protobuf: the damaged file must give the same points, and
count what was damaged.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from unittest import TestCase

import numpy as np

from support.event_files import FOOTER_BYTES, HEADER_BYTES, encode_records, masked_checksum
from support.python39 import pairwise
from support.read_events import LIMITS, Read, join, one_by_one, open_file, read_all
from tbupload.errors import CorruptRecord, NotAnEventFile, ReadError
from tbupload.events import skip_reasons
from tbupload.events.event_file import EventFileReader
from tbupload.events.points import Chunk, FileBlob, Tensor
from tbwire.checksums import preceding_crc

FILE_BYTES_MAX = 2**63 - 1
"""Size that no file can reach: a length that leads past it is corrupt whatever its checksum."""

assert_equal = TestCase().assertEqual  # says what differs outside of pytest, too


@dataclass(frozen=True)
class PlainFile:
    """The result of a plain loop: valid payloads, the number of invalid ones, where records start,
    where the last ends.
    """

    payloads: tuple[bytes, ...]
    damaged: int
    offsets: tuple[int, ...]
    end: int
    is_corrupt: bool


def read_plainly(content: bytes, *, final: bool = True) -> PlainFile:
    """Return the complete records of these bytes; unless `final`, the last one needs a correct
    checksum to be complete.
    """
    payloads, damaged, offsets, position, is_corrupt = [], 0, [], 0, False
    while position + HEADER_BYTES <= len(content):
        length, checksum = struct.unpack_from("<QI", content, position)
        end = position + HEADER_BYTES + length + FOOTER_BYTES
        is_corrupt = (
            checksum != masked_checksum(content[position : position + 8]) or end > FILE_BYTES_MAX
        )
        if is_corrupt or end > len(content):
            break
        payload = content[position + HEADER_BYTES : end - FOOTER_BYTES]
        if struct.unpack_from("<I", content, end - FOOTER_BYTES)[0] == masked_checksum(payload):
            payloads.append(payload)
        elif end == len(content) and not final:
            break
        else:
            damaged += 1
        offsets.append(position)
        position = end
    return PlainFile(tuple(payloads), damaged, tuple(offsets), position, is_corrupt)


def windows(content: bytes, bytes_max: int) -> Iterator[bytes]:
    """Split the file at record boundaries into pieces of at most `bytes_max`, or one record; each
    is an event file.

    So the work is proportional to a file's size. Bytes after the last complete record are left out.
    """
    plain = read_plainly(content)
    start = 0
    for offset, end in pairwise([*plain.offsets, plain.end]):
        if end - start > bytes_max and offset > start:
            yield content[start:offset]
            start = offset
    yield content[start : plain.end]


class Bench:
    """A directory with a file that is damaged and read repeatedly; every method fails if the reader
    is wrong.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "events.out.tfevents.damaged"
        self._clean = directory / "events.out.tfevents.clean"
        self._read_records = lru_cache(maxsize=256)(self._read_uncached)

    def check(self, content: bytes, *, final: bool = True) -> PlainFile:
        """Read these bytes: exactly the records that a plain loop finds, and no other error than it
        meets.
        """
        self._path.write_bytes(content)
        plain = read_plainly(content, final=final)
        file = open_file(self._path)
        chunks, error = read_to_end(file, final=final)
        assert_equal(_bounds(chunks), [0, plain.end] if plain.end else [])
        assert_equal(file.offset, plain.end)
        expected_error = (
            (CorruptRecord if plain.end else NotAnEventFile) if plain.is_corrupt else type(None)
        )
        assert_equal(type(error), expected_error)
        series, skipped = join(chunks)
        expected, expected_skipped = self._read_records(plain.payloads)
        assert_equal(
            skipped, expected_skipped + Counter({skip_reasons.RECORD_DAMAGED: plain.damaged})
        )
        assert_equal(_by_bits(series), _by_bits(expected))
        for chunk in chunks:
            assert_equal(chunk.end_checksum, preceding_crc(content[: chunk.end]))
        return plain

    def check_streamed(self, content: bytes, *, field_bytes_max: int) -> None:
        """Check the same records, each read as one that is too long to be loaded.

        Fields over a size stay in the file, if they are blobs. Blobs in the file are compared by their bytes. Skipped values are counted in the same way.
        """
        self._path.write_bytes(content)
        plain = read_plainly(content)
        limits = replace(
            LIMITS,
            chunk_bytes=1,
            streamed_record_bytes_min=-1,
            skeleton_field_bytes_max=field_bytes_max,
        )
        chunks, _ = read_to_end(open_file(self._path, limits=limits), final=True)
        series, skipped = self._read_records(plain.payloads)
        whole = _points(series, skipped + Counter({skip_reasons.RECORD_DAMAGED: plain.damaged}))
        assert_equal(_points(*join(chunks)), whole)

    def check_cut(self, content: bytes, size: int) -> None:
        """The first `size` bytes give the records that are whole; with the rest appended, all, and
        no metadata is lost.

        `content` is sound. At the end of a record, a reader that starts there gives what is left,
        too.
        """
        self._path.write_bytes(content[:size])
        plain = read_plainly(content[:size])
        file = open_file(self._path)
        assert_equal(file.first_record_digest() is None, not plain.offsets)
        before, error = read_to_end(file, final=False)
        assert_equal((_bounds(before), error), ([0, plain.end] if plain.end else [], None))
        assert_equal(_points(*join(before)), _points(*self._read_records(plain.payloads)))
        whole = self._read_records(read_plainly(content).payloads)
        with self._path.open("ab") as appended:
            appended.write(content[size:])
        readers = [file, open_file(self._path, start=size)] if size == plain.end else [file]
        for reader in readers:
            after, error = read_to_end(reader, final=True)
            assert_equal((_bounds([*before, *after])[1:], error), ([len(content)], None))
            assert_equal(_points(*join([*before, *after])), _points(*whole))

    def check_flip(self, content: bytes, offset: int, mask: int) -> None:
        """Check that a changed byte is noticed: its record is left out, or the file ends there if
        it was in its length.
        """
        sound = read_plainly(content)
        record = max(index for index, start in enumerate(sound.offsets) if start <= offset)
        others = sound.payloads[:record] + sound.payloads[record + 1 :]
        changed = _flip(content, offset, mask)
        result = self.check(changed)
        if offset < sound.offsets[record] + HEADER_BYTES:
            assert_equal(
                (result.payloads, result.end), (sound.payloads[:record], sound.offsets[record])
            )
        else:
            assert_equal((result.payloads, result.damaged, result.end), (others, 1, len(content)))
        if record == len(sound.offsets) - 1:  # nobody can tell yet: it may still be being written
            assert_equal(self.check(changed, final=False).end, sound.offsets[record])

    def check_resealed(self, content: bytes, offset: int, mask: int) -> None:
        """Check a changed byte of a length or payload with a matching checksum: it is read as
        protobuf reads it.
        """
        sound = read_plainly(content)
        start, end = next(
            pair for pair in pairwise([*sound.offsets, sound.end]) if pair[0] <= offset < pair[1]
        )
        if start + 8 <= offset < start + HEADER_BYTES or offset >= end - FOOTER_BYTES:
            return  # a checksum made right again is no damage
        changed = bytearray(_flip(content, offset, mask))
        changed[start + 8 : start + HEADER_BYTES] = _checksum(changed[start : start + 8])
        changed[end - FOOTER_BYTES : end] = _checksum(
            changed[start + HEADER_BYTES : end - FOOTER_BYTES]
        )
        self.check(bytes(changed))

    def _read_uncached(self, payloads: tuple[bytes, ...]) -> tuple[dict[str, Read], Counter[str]]:
        """Decode the records of an undamaged file one by one."""
        self._clean.write_bytes(encode_records(payloads))
        with one_by_one():
            return read_all(self._clean)


def read_to_end(file: EventFileReader, *, final: bool) -> tuple[list[Chunk], ReadError | None]:
    """Return the chunks, and the reader's own error that ended them, if any."""
    chunks = []
    try:
        while (chunk := file.read(final=final)) is not None:
            chunks.append(chunk)
    except (CorruptRecord, NotAnEventFile) as error:
        return chunks, error
    return chunks, None


def _bounds(chunks: list[Chunk]) -> list[int]:
    """Return where chunks begin and end, after checking that there is no gap."""
    for before, after in pairwise(chunks):
        assert_equal(before.end, after.start)
    return [chunks[0].start, chunks[-1].end] if chunks else []


def _by_bits(series: dict[str, Read]) -> dict[str, tuple]:
    """Return the series as comparable values: NaN, which a histogram may hold, equals nothing."""
    return {
        tag: (
            read.plugin,
            read.metadata,
            [(*point[:2], _comparable(point[2])) for point in read.points],
        )
        for tag, read in series.items()
    }


def _comparable(value: object) -> object:
    if isinstance(value, list):
        return [_content(blob) if isinstance(blob, FileBlob) else blob for blob in value]
    if isinstance(value, Tensor):
        return value.dtype, value.shape, value.data, repr(value.histogram)
    return value


def _points(
    series: dict[str, Read], skipped: Counter[str]
) -> tuple[dict[str, tuple], Counter[str]]:
    """Return what does not depend on where a file was cut into chunks: scalars as float64, and no
    metadata.
    """
    return {
        tag: (read.plugin, [_widened(*point) for point in read.points])
        for tag, read in series.items()
    }, skipped


def _widened(step: int, wall_time: bytes, value: object) -> tuple:
    if isinstance(value, tuple):
        dtype, data = value
        with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
            value = np.frombuffer(data, dtype).astype(np.float64).tobytes()
    return step, wall_time, _comparable(value)


def _content(blob: FileBlob) -> bytes:
    content = blob.path.read_bytes()[blob.offset : blob.offset + blob.size]
    assert_equal(hashlib.sha256(content).digest(), blob.sha256)
    return content


def _flip(content: bytes, offset: int, mask: int) -> bytes:
    return content[:offset] + bytes([content[offset] ^ mask]) + content[offset + 1 :]


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked_checksum(bytes(content)))
