"""Plain values passed between layers: ids, grants, series, cursors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NewType

import numpy as np
import numpy.typing as npt

from tbwire.points import DataClass

ExperimentId = NewType("ExperimentId", str)
"""128 random bits in base62, 22 characters."""

WorkspaceId = NewType("WorkspaceId", int)
TokenId = NewType("TokenId", str)

UserId = NewType("UserId", str)
"""128 random bits in base62, 22 characters."""

INT64_MAX: Final = 2**63 - 1
"""The maximum of PostgreSQL's bigint, and of every integer in a request."""

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Float64s = npt.NDArray[np.float64]

Booleans = npt.NDArray[np.bool_]

Ranks = npt.NDArray[np.uint8]
"""A column of ranks, 0 to 15; indexed by slot, it has 65,536 elements."""


class Visibility(enum.StrEnum):
    """Who may read an experiment: callers with a grant, or everyone who knows its link."""

    PRIVATE = "private"
    LINK = "link"


class Scope(enum.StrEnum):
    """What a token may do. `admin` includes the others."""

    APPEND = "append"
    READ = "read"
    ADMIN = "admin"


class Role(enum.StrEnum):
    """What a member of a workspace may do, each including the next.

    An owner manages members, invitations and the workspace's tokens; an editor creates, changes,
    shares and deletes experiments; a viewer reads.
    """

    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"

    @property
    def scopes(self) -> frozenset[Scope]:
        """What a browser session, and at most a token, of a member with this role may do."""
        return frozenset({Scope.READ}) if self is Role.VIEWER else frozenset(Scope)

    def includes(self, other: Role) -> bool:
        """Return whether this role permits all that the other does."""
        return _ROLE_ORDER.index(self) <= _ROLE_ORDER.index(other)


_ROLE_ORDER: Final = list(Role)


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
class Grant:
    """Proof of an authorization check by `auth/grants.py`. Compaction makes its own.

    `user_id` is the person who acts, by a browser session or a token of theirs. It is None for a
    machine's token, and for who has no more than a link.
    """

    workspace_id: WorkspaceId
    user_id: UserId | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class WorkspaceGrant(Grant):
    """May do in the whole workspace what the scope says that the grant was asked for.

    With `may_share`, who has the scope admin, new experiments can be visible by link.
    """

    may_share: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OwnerGrant(Grant):
    """May manage the workspace: its name, members, invitations and tokens."""


@dataclass(frozen=True, slots=True)
class PersonalGrant(Grant):
    """May do what concerns the person `user_id` alone, by a token of theirs.

    A new token of theirs may not exceed this one's scopes (admin includes all), workspace and
    `expires_at` (None: never).
    """

    token_id: TokenId
    scopes: frozenset[Scope]
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExperimentGrant(Grant):
    """A right on one experiment; the subclass is the right."""

    experiment_id: ExperimentId


@dataclass(frozen=True, slots=True)
class LinkView:
    """What a link shows: complete names that match (RE2; None: all); who and where, or not."""

    token_id: TokenId
    run_pattern: str | None = None
    tag_pattern: str | None = None
    is_anonymous: bool = False

    @property
    def is_restricted(self) -> bool:
        """Whether anything of the experiment is hidden."""
        return self.is_anonymous or (self.run_pattern, self.tag_pattern) != (None, None)


@dataclass(frozen=True, slots=True)
class ReadGrant(ExperimentGrant):
    """May read the experiment: everything, or with a share link what it shows.

    `is_stranger`: by the visibility `link` alone, as everyone may; learns nothing of people and
    hosts.
    """

    link: LinkView | None = None
    is_stranger: bool = False

    @property
    def view(self) -> LinkView | None:
        """What is shown, if it is not everything: part of the key of whatever is cached."""
        return self.link if self.link is not None and self.link.is_restricted else None


@dataclass(frozen=True, slots=True)
class AppendGrant(ExperimentGrant):
    """May append to the experiment and list its upload cursors.

    With `may_name_workspace_blobs`, the token is a workspace's: batches may refer to every blob of
    the workspace. Others may refer only to blobs that were uploaded through their experiment.
    """

    may_name_workspace_blobs: bool = False


@dataclass(frozen=True, slots=True)
class AdminGrant(ExperimentGrant):
    """May rename, delete and share the experiment."""


@dataclass(frozen=True, slots=True)
class KatibGrant(Grant):
    """May report trials of Katib: of one experiment, or of any in the workspace if that is None.

    As over HTTP, who may only append deletes nothing: that needs `may_delete`, which is the scope
    admin. With `may_read`, the logs can be read.
    """

    experiment_id: ExperimentId | None
    may_read: bool
    may_delete: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Person:
    """A user. `email` is "" if none is known; `name` may be "" (then show the e-mail address)."""

    user_id: UserId
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a secret belongs to, before anything is asked for.

    A browser session has a person and no workspace: the role in each workspace says what it may do.
    A token has a workspace and scopes, and a person unless it is a machine's.
    """

    person: Person | None
    workspace_id: WorkspaceId | None
    experiment_id: ExperimentId | None
    scopes: frozenset[Scope]
    token_id: TokenId | None


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that a person is signed in with; the secret is not part of it."""

    session_id: str
    person: Person
    user_agent: str
    address: str
    created_at: datetime
    last_used_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Membership:
    """A workspace that a person is a member of."""

    workspace_id: WorkspaceId
    workspace_name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a workspace."""

    person: Person
    role: Role
    joined_at: datetime


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link that invites to a workspace; the secret is not part of it. `email` "" is for anyone.

    At most one of `accepted_at` and `revoked_at` is set.
    """

    invitation_id: str
    workspace_id: WorkspaceId
    workspace_name: str
    role: Role
    email: str
    invited_by: Person | None
    created_at: datetime
    expires_at: datetime
    accepted_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExperimentUsage:
    """How many series and points one experiment has."""

    experiment_id: ExperimentId
    name: str
    series: int
    points: int


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """What a workspace stores; `largest` are its experiments with the most points."""

    experiments: int
    series: int
    points: int
    blobs: int
    blob_bytes: int
    largest: list[ExperimentUsage]


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as its owner sees it, without the texts of `ExperimentNotes`.

    `version` increases with every change of its data, and is 0 before the first. `points` arrived,
    of about `bytes` bytes, the last of them at `data_at`, or up to a minute later; both are None
    for a reader who may not know all of it. `deleted_at` is set while it can be restored, until
    `erase_at`. `number` is the order of creation.
    """

    experiment_id: ExperimentId
    name: str
    description: str
    visibility: Visibility
    created_at: datetime
    updated_at: datetime
    version: int
    tags: tuple[str, ...] = ()
    created_by: UserId | None = None
    points: int | None = 0
    bytes: int | None = 0
    data_at: datetime | None = None
    deleted_at: datetime | None = None
    erase_at: datetime | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret; `prefix` is the beginning of the secret, for lists.

    `created_by` is None for one that an administrator of the service created. With `is_personal`,
    it acts for a person, who created it, and ends with their rights.
    """

    token_id: TokenId
    workspace_id: WorkspaceId
    experiment_id: ExperimentId | None
    scopes: tuple[Scope, ...]
    label: str
    prefix: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_personal: bool = False
    created_by: Person | None = None


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
class Selection:
    """The series to list or read: every pair of these runs and tags, of one plugin and data class.

    None selects all, an empty set selects none. Scalar series must also have their last value in
    [last_value_min, last_value_max], if one is set; NaN is outside of every range.
    """

    plugin: str | None = None
    runs: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    data_class: DataClass | None = None
    last_value_min: float | None = None
    last_value_max: float | None = None


@dataclass(frozen=True, slots=True)
class StepRange:
    """The steps from `first` to `last`, inclusive; empty if `first` is greater."""

    first: int = -(2**63)
    last: int = 2**63 - 1

    def covers(self, series: Series) -> bool:
        """Return whether every point of the series is in the range."""
        return self.first <= series.first_step and series.last_step <= self.last


ALL_STEPS: Final = StepRange()


class SamplingRule(enum.StrEnum):
    """How the points of a sample are chosen along the step axis."""

    UNIFORM = "uniform"
    BERNOULLI = "bernoulli"
    LINEAR = "linear"
    EXTREMES = "extremes"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Sampling:
    """The points to return of each series: of the `last` points in `steps`, some, by a rule.

    At most `k` points; for a Bernoulli sample about `percent` of them instead, drawn with `seed`.
    If `last` is None, all points in `steps` are eligible.
    """

    rule: SamplingRule = SamplingRule.UNIFORM
    k: int = 0
    percent: float = 100.0
    seed: int = 0
    steps: StepRange = ALL_STEPS
    last: int | None = None

    def points_max(self, count: int) -> int:
        """Return the maximum size of a sample of `count` points; an estimate if Bernoulli."""
        count = count if self.last is None else min(count, self.last)
        if self.rule is SamplingRule.ALL:
            return count
        if self.rule is SamplingRule.BERNOULLI:
            return min(count, 2 + int(count * self.percent / 100))
        return min(count, self.k)


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


Json = dict[str, Any]
