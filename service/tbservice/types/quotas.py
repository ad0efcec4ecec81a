"""Usage and limits of workspaces and accounts, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

QUOTA_MAX: Final = 2**63 - 1
"""Points, bytes or items of the greatest limit: a bigint of PostgreSQL. This one is no limit."""


class Traffic(NamedTuple):
    """Requests that were let in, and bytes of the bodies of their answers."""

    requests: int = 0
    export_bytes: int = 0

    def plus(self, other: Traffic) -> Traffic:
        """Return the sum."""
        return Traffic(*(mine + its for mine, its in zip(self, other, strict=True)))


NO_TRAFFIC: Final = Traffic()

GroupKey = tuple[str, str]
"""`PERSON` or `EXPERIMENT`, and a key of it: requests are counted for these, too."""

PERSON: Final = "person"
EXPERIMENT: Final = "experiment"

LINKS: Final = "links"
"""Key of a person: readers of links, of public pages, and with tokens that read one experiment."""

MACHINES: Final = "machines"
"""Key of a person: tokens that act for nobody."""

OTHERS: Final = "others"
"""Key of all people, or experiments, that are not counted one by one."""


class TrafficGroup(NamedTuple):
    """Traffic of a month ("YYYY-MM", UTC) by a person, or by who reads or writes an experiment.

    A request that several experiments are read by counts for each of them.
    """

    month: str
    kind: str
    key: str
    name: str
    traffic: Traffic
    is_deleted: bool = False


class Usage(NamedTuple):
    """Stored points by data class, and bytes. Also a difference of two of these.

    Points include those of earlier attempts. Bytes of tensors are those of their values, bytes of
    blobs those of the objects, each of which a workspace has once.
    """

    scalars: int = 0
    tensors: int = 0
    blob_sequences: int = 0
    tensor_bytes: int = 0
    blob_bytes: int = 0

    @property
    def points(self) -> int:
        """Points of all data classes."""
        return self.scalars + self.tensors + self.blob_sequences

    def plus(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(*(mine + its for mine, its in zip(self, other, strict=True)))

    def minus(self, other: Usage) -> Usage:
        """Return the difference."""
        return Usage(*(mine - its for mine, its in zip(self, other, strict=True)))


NOTHING: Final = Usage()


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a workspace or account; None for none.

    Points and bytes are those of `Usage`, requests and exported bytes those of `Traffic` in a
    month (UTC).
    """

    points: int | None = None
    tensor_bytes: int | None = None
    blob_bytes: int | None = None
    experiments: int | None = None
    members: int | None = None
    requests: int | None = None
    export_bytes: int | None = None

    def as_dict(self) -> dict[str, int | None]:
        """Return the limits by name."""
        return {name: getattr(self, name) for name in QUOTA_NAMES}

    @staticmethod
    def of(limits: Mapping[str, int | None]) -> Quota:
        """Return the quota with these limits; QUOTA_MAX is none."""
        return Quota(
            **{name: None if value == QUOTA_MAX else value for name, value in limits.items()}
        )


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Usage and limits of a workspace, or of all workspaces of an account together.

    `experiments` are those that can be restored, too; `uncounted` are the ones of `stored` that
    count as what arrived, since nothing was added to them since they are counted. Frozen copies
    count in `stored` like experiments. `traffic` is that of the month.
    """

    quota: Quota
    stored: Usage
    experiments: int
    members: int
    frozen_copies: int = 0
    uncounted: int = 0
    traffic: Traffic = NO_TRAFFIC

    def used(self, name: str) -> int:
        """Return how much of a limit is used, by its name."""
        counts = {**dict.fromkeys(COUNTED, self.stored), **dict.fromkeys(MONTHLY, self.traffic)}
        own: int = getattr(counts.get(name, self), name)
        return own


QUOTA_NAMES: Final = tuple(field.name for field in fields(Quota))
"""Names of the limits, which are columns of the tables of quotas and keys of the file of plans."""

COUNTED: Final = ("points", "tensor_bytes", "blob_bytes")
"""The limits on what `Usage` counts."""

MONTHLY: Final = Traffic._fields
"""The limits on what `Traffic` counts in a month; those that are left are on numbers of rows."""

UNITS: Final = {
    "points": "points",
    "tensor_bytes": "bytes of tensors",
    "blob_bytes": "bytes of blobs",
    "experiments": "experiments",
    "members": "members",
    "requests": "requests",
    "export_bytes": "bytes of answers",
}
"""Units of the limits, for people."""
