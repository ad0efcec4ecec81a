"""Result of one read of an event file: columns of points by tag, ready for the wire."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

from tbwire import wire_pb2
from tbwire.points import SLOTS, BlobSequencePoints, ScalarPoints, TensorPoints


@dataclass(frozen=True, **SLOTS)
class FileBlob:
    """A large blob that stays in its file until it is sent.

    A later reader must compare the digest: by then the file may have been replaced.

    Attributes:
        path: The file.
        offset: Where the blob starts, if it is one range of the file.
        size: Bytes of the blob.
        sha256: Digest of its bytes when the file was read.
        extents: Unless empty, what the blob consists of instead of one range, in order: bytes in
            memory, and ranges of the file's bytes.
    """

    path: Path
    offset: int
    size: int
    sha256: bytes
    extents: tuple[bytes | range, ...] = ()

    def __len__(self) -> int:
        return self.size


@dataclass(**SLOTS)
class Tensor:
    """A tensor as `tbwire.tensors` packs it.

    Attributes:
        dtype: TensorFlow's data type number.
        shape: Its dimensions.
        data: Its elements; empty when they are `in_file`.
        histogram: The legacy histogram that the tensor was made from, if it was.
        in_file: Where a large tensor's elements are.
    """

    dtype: int
    shape: tuple[int, ...]
    data: bytes
    histogram: wire_pb2.LegacyHistogram | None = None
    in_file: FileBlob | None = None


Blob = Union[bytes, FileBlob]
"""A blob in memory, or a reference to a large one in its file; `len` returns its bytes for both."""


@dataclass(frozen=True, **SLOTS)
class BlobSequence:
    """The ordered blobs of one step, and the content type logged with them, empty for none."""

    blobs: list[Blob]
    logged_content_type: str = ""


Columns = Union[ScalarPoints, TensorPoints[Tensor], BlobSequencePoints[Blob]]
"""Points of one series, in file order."""


@dataclass
class SeriesPoints:
    """The points that were read of one tag.

    `metadata` is a serialized `tbwire.tensorboard_pb2.SummaryMetadata`; plugin name and data class
    are always set. It is the tag's first one in this file; for plugin `hparams`, the union of those
    of the chunk.
    """

    tag: str
    plugin: str
    metadata: bytes
    columns: Columns


@dataclass
class Chunk:
    """The complete records in bytes [start, end) of one event file, decoded.

    Attributes:
        start: Byte offset of the first record.
        end: Byte offset after the last record.
        start_checksum: `tbwire.checksums.preceding_crc` of the bytes before `start`.
        end_checksum: Checksum of the bytes before `end`.
        series: The points, by series in the order in which their tags occur in the file.
        skipped: Number of values that cannot be sent, by a reason for people (`skip_reasons`).
            Values that a filter excludes are not counted.
    """

    start: int
    end: int
    start_checksum: int
    end_checksum: int
    series: list[SeriesPoints] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
