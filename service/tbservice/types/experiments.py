"""Experiments and what they and workspaces store, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from tbservice.types.identifiers import ExperimentId, UserId
from tbservice.types.quotas import Traffic, TrafficGroup, Usage, UsageTotals

RESTORABLE: Final = timedelta(days=7)
"""For how long an experiment is restored after its deletion; then it is erased."""

Expiry = datetime | Literal["never"]
"""When an experiment is deleted by itself."""


class Visibility(enum.StrEnum):
    """The readers of an experiment: callers with a grant, or everyone who knows its link."""

    PRIVATE = "private"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class ExperimentUsage:
    """Usage of one experiment, with its frozen copies; blobs that came by it first."""

    experiment_id: ExperimentId
    name: str
    usage: Usage
    frozen_copies: int = 0
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """Usage of the experiments of a month, or of a person."""

    key: str
    name: str
    experiments: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """Usage of a workspace: in all, by month of creation, by person, and its largest experiments.

    Months and people have the experiments that they have created, with frozen copies of these.
    """

    totals: UsageTotals
    account: UsageTotals | None
    """Totals of the account that the workspace belongs to, if it has a quota."""
    months: list[UsageGroup]
    members: list[UsageGroup]
    largest: list[ExperimentUsage]
    traffic: list[tuple[str, Traffic]]
    """Months as "YYYY-MM" (UTC), the latest first."""
    traffic_groups: list[TrafficGroup]
    """Months, the latest first; of each people, then experiments, the most requests first."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as its owner sees it, without the texts of `ExperimentNotes`.

    `version` increases with every change of its data, and is 0 before the first. `points` arrived,
    of about `bytes` bytes, the last of them at `data_at`, or up to a minute later; both are None
    for a reader who may not know all of it. `deleted_at` is set while it can be restored, until
    `erase_at`; before, `erase_at` is set if it expires. `number` is the order of creation.
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

    @property
    def expires_at(self) -> datetime | None:
        """When it is deleted by itself; None for never, and for one that is deleted."""
        if self.erase_at is None or self.deleted_at is not None:
            return None
        return self.erase_at - RESTORABLE
