"""The plain values that pass between the layers: ids, grants, series, points, samples."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NewType

import numpy as np
import numpy.typing as npt

ExperimentId = NewType("ExperimentId", str)
"""128 random bits in base62, 22 characters."""

WorkspaceId = NewType("WorkspaceId", int)
TokenId = NewType("TokenId", str)

INT64_MAX: Final = 2**63 - 1
"""The greatest number that fits a bigint of PostgreSQL, and so the bound of every whole number of a request."""

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Float64s = npt.NDArray[np.float64]

Booleans = npt.NDArray[np.bool_]

Ranks = npt.NDArray[np.uint8]
"""A column of ranks; where slots are meant, one for each of the 65,536: 0 is the finest draw, 15 everything."""


class DataClass(enum.IntEnum):
    """What a time series is made of; the numbers are TensorBoard's."""

    SCALAR = 1
    TENSOR = 2
    BLOB_SEQUENCE = 3


class Visibility(enum.StrEnum):
    """Who may read an experiment: those with a grant, or anyone who has its link."""

    PRIVATE = "private"
    LINK = "link"


class Scope(enum.StrEnum):
    """What a token may do. `admin` includes the others."""

    APPEND = "append"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Grant:
    """Proof that a check was made: only `auth/grants.py` makes these."""

    workspace_id: WorkspaceId


@dataclass(frozen=True, slots=True)
class WorkspaceGrant(Grant):
    """May create and list experiments in the workspace."""


@dataclass(frozen=True, slots=True)
class ExperimentGrant(Grant):
    """Some right on one experiment; the subclass says which."""

    experiment_id: ExperimentId


@dataclass(frozen=True, slots=True)
class ReadGrant(ExperimentGrant):
    """May read everything in the experiment."""


@dataclass(frozen=True, slots=True)
class AppendGrant(ExperimentGrant):
    """May add to the experiment, and read its cursors.

    With `may_name_workspace_blobs`, the token is a workspace's: it may name every blob of the workspace. Others may
    name only the blobs that were put through their experiment.
    """

    may_name_workspace_blobs: bool = False


@dataclass(frozen=True, slots=True)
class AdminGrant(ExperimentGrant):
    """May rename, delete and share the experiment."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as its owner sees it. `version` grows with every change of its data."""

    experiment_id: ExperimentId
    name: str
    description: str
    visibility: Visibility
    created_at: datetime
    updated_at: datetime
    version: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. `prefix` is how it begins, to tell it by."""

    token_id: TokenId
    experiment_id: ExperimentId | None
    scopes: tuple[Scope, ...]
    label: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Run:
    """A run; `start_time` is the wall time of its first event, in seconds, None when not known."""

    name: str
    start_time: float | None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which series to list or read: the cross product of runs and tags, of one plugin and one data class.

    None selects all, an empty set selects nothing. Of scalar series, only those whose last value lies in
    [last_value_min, last_value_max], and NaN lies nowhere.
    """

    plugin: str | None = None
    runs: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    data_class: DataClass | None = None
    last_value_min: float | None = None
    last_value_max: float | None = None


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps from `first` to `last`, both included; none when the first is the greater."""

    first: int = -(2**63)
    last: int = 2**63 - 1

    def covers(self, series: Series) -> bool:
        """Whether it leaves out no point of the series."""
        return self.first <= series.first_step and series.last_step <= self.last


ALL_STEPS: Final = StepRange()


class SamplingRule(enum.StrEnum):
    """How the points of a sample are chosen on the axis of steps."""

    UNIFORM = "uniform"
    BERNOULLI = "bernoulli"
    LINEAR = "linear"
    EXTREMES = "extremes"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which points of each series: of those in `steps`, and of these the `last` so many (None: all), by a rule.

    At most `k` points are kept, of a Bernoulli sample instead about `percent`, drawn with `seed`.
    """

    rule: SamplingRule = SamplingRule.UNIFORM
    k: int = 0
    percent: float = 100.0
    seed: int = 0
    steps: StepRange = ALL_STEPS
    last: int | None = None

    def points_max(self, count: int) -> int:
        """How many of `count` points are kept at most; of a Bernoulli sample about how many."""
        count = count if self.last is None else min(count, self.last)
        if self.rule is SamplingRule.ALL:
            return count
        if self.rule is SamplingRule.BERNOULLI:
            return min(count, 2 + int(count * self.percent / 100))
        return min(count, self.k)


@dataclass(frozen=True, slots=True)
class Series:
    """One time series and what is known of it without reading its points.

    `count` is exact while `count_is_exact`; otherwise it counts some steps twice. `sealed_count` points of a scalar
    series are in sealed blocks. `max_length` is the length of the longest blob sequence. First and last point are
    those with the least and the greatest step; their values are None unless the series is scalar.
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
class ScalarSample:
    """Points of a scalar series in step order, one a step; the series has `total` in the steps that were asked for."""

    steps: Int64s
    wall_times: Float64s
    values: Float64s
    total: int


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The bytes of a tensor as an object: their SHA-256, how many, and the object's key once it was looked up."""

    sha256: bytes
    size: int
    object_key: str = ""


@dataclass(frozen=True, slots=True)
class TensorValue:
    """A tensor as `tbwire.tensors` packs it; a legacy histogram keeps its fields too, as a serialized message.

    With a `reference`, `data` is empty: `domain.tensor_objects.load` puts the bytes in its place.
    """

    dtype: int
    shape: tuple[int, ...]
    data: bytes
    histogram: bytes | None = None
    reference: ObjectReference | None = None

    @property
    def size(self) -> int:
        """Bytes of the data, wherever they are."""
        return len(self.data) if self.reference is None else self.reference.size


@dataclass(frozen=True, slots=True)
class TensorSample:
    """Points of a tensor series in step order; `tensors` is as long as `steps`."""

    steps: Int64s
    wall_times: Float64s
    tensors: Sequence[TensorValue]
    total: int


@dataclass(frozen=True, slots=True)
class BlobSequenceSample:
    """Points of a blob sequence series in step order.

    Each sequence has the blob keys of one step, in order; `digests` has their SHA-256s, and
    `logged_content_types` the type that was logged with the one blob of a step, empty for none. It
    comes from the uploader as it is, and is never a header of a response.
    """

    steps: Int64s
    wall_times: Float64s
    sequences: Sequence[Sequence[str]]
    digests: Sequence[Sequence[bytes]]
    logged_content_types: Sequence[str]
    total: int


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob that may be read: where it is, its size in bytes, what it is served as, and its SHA-256 in hexadecimal."""

    object_key: str
    size: int
    content_type: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Stream:
    """One event file of one run, read through one set of filters."""

    run: str
    file_name: str
    first_record_digest: bytes
    generation: int
    filters_digest: bytes


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a stream has been committed, and what its uploader had to leave out, counted by reason."""

    stream: Stream
    offset: int
    checksum: int
    skipped: dict[str, int] = field(default_factory=dict)


Json = dict[str, Any]
