"""What one read of an event file found: columns of points by tag, ready for the wire."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

Steps = npt.NDArray[np.int64]
WallTimes = npt.NDArray[np.float64]


@dataclass(slots=True)
class ScalarColumns:
    """Points of a scalar series in file order: three arrays of one length; `values` float32 or float64, as written."""

    steps: Steps
    wall_times: WallTimes
    values: npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FileBlob:
    """A large blob that stays in its event file: `size` bytes from `offset` on, with this SHA-256 when they were read.

    With `pieces` it is these one after the other: bytes in memory, and ranges of the file's bytes.
    Whoever reads them later has to compare: by then the file may be another one.
    """

    path: Path
    offset: int
    size: int
    sha256: bytes
    pieces: tuple[bytes | range, ...] = ()

    def __len__(self) -> int:
        return self.size


@dataclass(slots=True)
class LegacyHistogram:
    """The fields of a HistogramProto as its writer left them."""

    min: float
    max: float
    num: float
    sum: float
    sum_squares: float
    bucket_limit: list[float]
    bucket: list[float]


@dataclass(slots=True)
class Tensor:
    """A tensor as `tbwire.tensors` packs it: TensorFlow's data type, shape, bytes.

    The bytes of a large one stay `in_file`; `data` is empty then.
    """

    dtype: int
    shape: tuple[int, ...]
    data: bytes
    histogram: LegacyHistogram | None = None
    in_file: FileBlob | None = None


@dataclass(slots=True)
class TensorColumns:
    """Points of a tensor series in file order; `tensors` is as long as the two arrays."""

    steps: Steps
    wall_times: WallTimes
    tensors: list[Tensor]


Blob = bytes | FileBlob
"""A blob in memory, or where in its file a large one lies; either has a length in bytes."""


@dataclass(frozen=True, slots=True)
class BlobSequence:
    """The ordered blobs of one step, and the content type that was logged with them, empty when none was."""

    blobs: list[Blob]
    logged_content_type: str = ""


@dataclass(slots=True)
class BlobSequenceColumns:
    """Points of a blob sequence series in file order: four columns of one length."""

    steps: Steps
    wall_times: WallTimes
    sequences: list[list[Blob]]
    logged_content_types: list[str]


Columns = ScalarColumns | TensorColumns | BlobSequenceColumns


@dataclass(slots=True)
class SeriesPoints:
    """What was read for one tag.

    `metadata` is a serialized `tbwire.tensorboard_pb2.SummaryMetadata` with plugin name and data class always set. It
    is the first one of the tag in this file, except for plugin `hparams`, where it is the latest.
    """

    tag: str
    plugin: str
    metadata: bytes
    columns: Columns


@dataclass(slots=True)
class Chunk:
    """The whole records in bytes [start, end) of one event file, and what was in them.

    `start_checksum` and `end_checksum` are `tbwire.checksums.preceding_crc` of the bytes before each offset.
    `skipped` counts, by a reason a person can read, what could not be sent, and `refusals.EMPTY` values; what a filter
    left out is not in it.
    """

    start: int
    end: int
    start_checksum: int
    end_checksum: int
    series: list[SeriesPoints] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
