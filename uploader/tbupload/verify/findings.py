"""What verifying found of each series, and of the whole, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tbupload.console.texts import PROBLEMS_SHOWN, size_text
from tbupload.upload.summary import empty_values_lines
from tbupload.verify.lost_objects import LostObjects
from tbupload.verify.step_order import Differences, StepSample


class Status(StrEnum):
    """How a series stands; `EXTRA`: all that is in the files is there, and something besides.

    `DAMAGED`: its points are those of the files, and the bytes of some of its blobs have been lost.
    """

    MATCHING = "proven"
    MISSING = "missing"
    DIFFERENT = "different"
    EXTRA = "extra"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Finding:
    """One series; `points` are those of the files. `reasons` are sentences about what is not points."""

    run: str
    tag: str
    plugin: str
    data_class: str
    status: Status
    points: int
    stored_points: int
    differences: Differences | None = None
    reasons: tuple[str, ...] = ()
    lost_objects: LostObjects | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields, with steps by kind where points differ."""
        found: dict[str, Any] = {
            "run": self.run,
            "tag": self.tag,
            "plugin": self.plugin,
            "data_class": self.data_class,
            "status": self.status.value,
            "points": self.points,
            "stored_points": self.stored_points,
            "reasons": list(self.reasons),
        }
        if self.differences is not None:
            for name, steps in _kinds(self.differences):
                found[name] = steps.count
                found[f"first_{name}_steps"] = steps.first
        if self.lost_objects is not None:
            found["lost_objects"] = self.lost_objects.as_json()
        return found

    def line(self) -> str:
        """One line for people."""
        name = f"{self.run}  {self.tag}  ({self.plugin or 'no plugin'})"
        return f"{self.status.value:<9}  {name}: {self._explanation()}"

    def _explanation(self) -> str:
        told = list(self.reasons)
        if self.differences is not None:
            told += [
                _steps_text(name, steps) for name, steps in _kinds(self.differences) if steps.count
            ]
        if self.lost_objects is not None:
            told += self.lost_objects.sentences()
        return "; ".join(told) or f"{self.points:,} points"


def _kinds(differences: Differences) -> Iterator[tuple[str, StepSample]]:
    yield "missing", differences.missing
    yield "different", differences.different
    yield "extra", differences.extra


def _steps_text(name: str, steps: StepSample) -> str:
    points = "point" if steps.count == 1 else "points"
    label = "step" if steps.count == 1 else "steps"
    more = ", …" if steps.count > len(steps.first) else ""
    return f"{steps.count:,} {points} {name} ({label} {', '.join(map(str, steps.first))}{more})"


@dataclass(slots=True)
class VerifyResult:
    """What was found in all; `skipped`, `problems` and `notes` as in an upload's summary, `bytes` of event files.

    `extra_runs` are runs of the experiment that are not in the logdir. `embeddings` are those of the projector among
    the series of the files: their time is that of the upload, and not compared. Without `is_strict`, what the
    experiment holds beyond the files is told and is no fault: files may have been rotated or deleted since then, and
    `empty_values` (tags without content) need not be anywhere. `superseded` points of the files are replaced by others
    of the same run, tag and step.

    `objects` is how many objects of `object_bytes` were checked in the server's object store (`is_deep`: byte by
    byte), each counted once for the runs that were compared together; `lost_objects` the SHA-256s (hexadecimal) of
    those that were lost, by run.
    """

    experiment_id: str
    is_strict: bool
    runs: int = 0
    points: int = 0
    bytes: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    extra_runs: list[str] = field(default_factory=list)
    embeddings: int = 0
    empty_values: int = 0
    superseded: int = 0
    objects: int = 0
    object_bytes: int = 0
    is_deep: bool = False
    lost_objects: dict[str, set[str]] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_matching(self) -> bool:
        """Whether the experiment holds all that is in the files, and everything in the files can be held."""
        at_fault = sum(
            self.statuses[each] for each in (Status.MISSING, Status.DIFFERENT, Status.DAMAGED)
        )
        return (
            not at_fault
            and not self.skipped
            and not self.problems
            and not (self.is_strict and self._has_extra)
        )

    @property
    def lost_count(self) -> int:
        """How many objects were lost, each counted once."""
        return len(set().union(*self.lost_objects.values()))

    @property
    def _has_extra(self) -> bool:
        return bool(self.extra_runs or self.statuses[Status.EXTRA])

    def as_json(self) -> dict[str, Any]:
        """The fields; `series` by how they stand."""
        return {
            "proven": self.is_matching,
            "experiment_id": self.experiment_id,
            "runs": self.runs,
            "points": self.points,
            "bytes": self.bytes,
            "series": {status.value: self.statuses[status] for status in Status},
            "extra_runs": self.extra_runs,
            "embeddings": self.embeddings,
            "empty_values": self.empty_values,
            "superseded": self.superseded,
            "objects": {
                "checked": self.objects,
                "bytes": self.object_bytes,
                "lost": self.lost_count,
            },
            "skipped": dict(sorted(self.skipped.items())),
            "problems": self.problems,
            "notes": self.notes,
        }

    def lines(self) -> Iterator[str]:
        """Sentences for people."""
        series = sum(self.statuses.values())
        of = (
            f"{self.points:,} points of {self.runs:,} runs ({size_text(self.bytes)} of event files)"
        )
        if self.is_matching:
            yield f"proven: experiment {self.experiment_id} holds every point of these files, bit by bit: {of}"
        else:
            yield f"NOT proven: experiment {self.experiment_id} does not hold exactly what is in these files: {of}"
        counts = ", ".join(
            f"{self.statuses[status]:,} {status.value}"
            for status in Status
            if self.statuses[status]
        )
        yield f"{series:,} series: {counts or 'none'}"
        if self.embeddings:
            what = "of the projector were compared but for their time, which is that of the upload"
            yield f"embeddings {what}: {self.embeddings:,}"
        if self.superseded:
            yield f"  {self.superseded:,} more points are superseded: a step keeps one point"
        yield from empty_values_lines(self.empty_values)
        if self.objects:
            how = "" if self.is_deep else " to be there with their size (--deep reads their bytes)"
            size = size_text(self.object_bytes)
            yield f"objects checked{how}: {self.objects:,} ({size}), lost: {self.lost_count:,}"
        yield from self.notes[:PROBLEMS_SHOWN]
        for reason, count in sorted(self.skipped.items()):
            yield f"  cannot be uploaded: {count:,}: {reason}"
        yield from (f"  {problem}" for problem in self.problems[:PROBLEMS_SHOWN])
        if self._has_extra:
            yield from self._extra_lines()

    def _extra_lines(self) -> Iterator[str]:
        if self.extra_runs:
            shown = ", ".join(self.extra_runs[:PROBLEMS_SHOWN])
            more = ", …" if len(self.extra_runs) > PROBLEMS_SHOWN else ""
            yield f"runs that are not in the logdir: {len(self.extra_runs):,} ({shown}{more})"
        yield (
            "the experiment holds more than these files: points of files that were deleted, rotated or truncated "
            "since, or sent from elsewhere"
            + (", which --strict does not allow" if self.is_strict else "")
        )
