"""Runs, time series, blobs and upload cursors, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tbwire.points import DataClass

HparamValue = bool | float | str | None
"""The value of a hyperparameter; None for one that has no value."""


class SessionStatus(enum.IntEnum):
    """The status of a session; the numbers are those of TensorBoard's `Status`.

    Source: `tensorboard/plugins/hparams/api.proto`.
    """

    UNKNOWN = 0
    SUCCESS = 1
    FAILURE = 2
    RUNNING = 3


@dataclass(frozen=True, slots=True)
class Run:
    """A run; `start_time` is the wall time of its first event in seconds, None if unknown."""

    name: str
    start_time: float | None


@dataclass(frozen=True, slots=True)
class RunSize:
    """A run by id and name, with its numbers of series and of points (as `Series.count`)."""

    run_id: int
    name: str
    series: int
    points: int


@dataclass(frozen=True, slots=True)
class Series:
    """A time series and its properties that are known without reading its points.

    `count` is exact if `count_is_exact`; else it counts some steps twice. `sealed_count` points of
    a scalar series are in sealed blocks. `max_length` is the length of the longest blob sequence.
    First and last point are those with the least and the greatest step; their values are None
    unless the series is scalar.
    """

    series_id: int
    run_id: int
    run: str
    tag: str
    plugin: str
    data_class: DataClass
    summary_metadata: bytes
    count: int
    count_is_exact: bool
    sealed_count: int
    max_length: int
    first_step: int
    first_wall_time: float
    first_value: float | None
    last_step: int
    last_wall_time: float
    last_value: float | None
    max_wall_time: float


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob with its object key, size in bytes, content type, and SHA-256 in hexadecimal."""

    object_key: str
    size: int
    content_type: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One event file of one run, read with one set of filters."""

    run: str
    file_name: str
    first_record_digest: bytes
    generation: int
    filters_digest: bytes


@dataclass(frozen=True, slots=True)
class Cursor:
    """An upload cursor: the committed byte offset of a stream, and its skipped points by reason."""

    stream: Stream
    offset: int
    checksum: int
    skipped: dict[str, int] = field(default_factory=dict)
