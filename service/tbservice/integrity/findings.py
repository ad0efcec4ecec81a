"""Findings of a check: damage, orphans, and how much it has looked at; what checks share."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import Connection

from tbservice.throttle import Throttle
from tbservice.types.identifiers import ExperimentId, Ranks, WorkspaceId


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is lost or contradicts something else. No text of a tenant is in it.

    `kind` is `object_missing`, `object_size`, `object_content`, `object_unreadable`, `unpack`,
    `order`, `count`, `level`, `sample_order`, `value`, `reference`, `usage`, `audit` (workspace
    0: acts of none) or `reference_table`, which is of no workspace.
    """

    kind: str
    detail: str
    workspace_id: WorkspaceId | None
    experiment_id: ExperimentId | None = None
    series_id: int | None = None

    def __str__(self) -> str:
        """Return one line."""
        if self.workspace_id is None:
            return f"{self.kind}: {self.detail}"
        place = f"workspace {self.workspace_id}"
        if self.experiment_id is not None:
            place += f", experiment {self.experiment_id}"
        if self.series_id is not None:
            place += f", series {self.series_id}"
        return f"{self.kind}: {self.detail} ({place})"


@dataclass(slots=True)
class Looked:
    """How much was looked at. Orphans are objects that no row names: they cost space alone."""

    workspaces: int = 0
    experiments: int = 0
    series: int = 0
    points: int = 0
    blocks: int = 0
    tensors: int = 0
    blob_sequences: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    database_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0


@dataclass(slots=True)
class Findings:
    """The result of a check."""

    looked: Looked = field(default_factory=Looked)
    damage: list[Damage] = field(default_factory=list)
    orphan_keys: list[str] = field(default_factory=list)
    last_experiment_id: ExperimentId | None = None
    """The last experiment that was checked completely: continue after it."""

    @property
    def is_sound(self) -> bool:
        """Return whether no damage was found."""
        return not self.damage

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain values."""
        return {"is_sound": self.is_sound, **asdict(self)}


@dataclass(slots=True)
class SeriesCheck:
    """A check of the series of one experiment."""

    db: Connection
    """A snapshot."""
    place: tuple[WorkspaceId, ExperimentId]
    ranks: Ranks
    """The ranks of the sample slots."""
    throttle: Throttle
    looked: Looked

    def damage(self, kind: str, detail: str, series_id: int) -> Damage:
        """Return damage of a series of the experiment."""
        return Damage(kind, detail, *self.place, series_id)
