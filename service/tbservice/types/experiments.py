"""Experiments and what they and workspaces store, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from tbservice.types.identifiers import ExperimentId, UserId


class Visibility(enum.StrEnum):
    """The readers of an experiment: callers with a grant, or everyone who knows its link."""

    PRIVATE = "private"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class ExperimentUsage:
    """How many series and points one experiment has."""

    experiment_id: ExperimentId
    name: str
    series: int
    points: int


@dataclass(frozen=True, slots=True)
class WorkspaceUsage:
    """The data of a workspace; `largest` are its experiments with the most points."""

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
