"""Types of the points that are read from a server, and concatenation of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from tbupload.events.points import Tensor
from tbwire.points import SLOTS, BlobSequencePoints, ScalarPoints, TensorPoints


@dataclass(frozen=True)
class RemoteSeries:
    """A series on the server.

    `data_class` is the number in `tensorboard/compat/proto/summary.proto`, `metadata` a serialized
    `tbwire.tensorboard_pb2.SummaryMetadata`, and `total` the number of points of the series when it
    was listed.
    """

    run: str
    tag: str
    plugin: str
    data_class: int
    metadata: bytes
    total: int


@dataclass(frozen=True, **SLOTS)
class RemoteBlob:
    """A blob on the server: its key, SHA-256 (32 bytes), size in bytes, and content type."""

    key: str
    sha256: bytes
    size: int
    content_type: str


@dataclass(frozen=True)
class LostPoint:
    """A point that is left out, because the server lost the object with its bytes.

    `is_unreadable`: the object store could not read the object, which may succeed later.
    """

    run: str
    tag: str
    step: int
    reason: str
    is_unreadable: bool = False


Columns = Union[ScalarPoints, TensorPoints[Tensor], BlobSequencePoints[RemoteBlob]]


@dataclass(frozen=True)
class SeriesPart:
    """Points of one series in step order, one per step, as columns of equal length.

    Steps are int64, wall times and scalar values float64. `sampling` is the rule by which the
    points were selected; "all" omits none. `is_last` marks the last part of the series.
    """

    series: RemoteSeries
    columns: Columns
    is_last: bool
    sampling: str
